"""Drafts that come out of the target's own verification passes: ids, laws, rows, caches, limits, batches."""

from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import final

import pytest
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from forerun.distributions import Purpose, SamplingParams, Streams
from forerun.drafters import MaskTokenRiders, ProposalPolicy
from forerun.drafters.mask_token.riding import MaskTokenRidersSession
from forerun.engine import Finish, Generation, generate, generate_batch
from forerun.horizons import AMTP
from forerun.models import TableTarget, TransformersTarget, load_target, tiny_target
from forerun.verification import BlockVerification, Rule, TokenLevel
from tests.engine.test_greedy import assert_in_step
from tests.engine.test_law import ALPHA, SEED, VOCAB, p_values
from tests.exactness.enumerate import Tokens, chain_law, distance, run_law
from tests.support.families import FAMILIES, write_model
from tests.support.horizons import Clocked, Forced
from tests.support.masks import add_mask
from tests.support.speed import without_shape_checks
from tests.support.targets import fresh_greedy

GREEDY = SamplingParams(temperature=0.0)
PROMPT = (5, 9, 2, 40, 7)
CLOSE = 1e-9
"""Float64: one pass with riders against a fresh one."""


def committed(generation: Generation) -> list[int]:
    return list(generation._session._committed)


def assert_rows_are_fresh(generation: Generation, target: TransformersTarget, mask: int) -> int:
    """The rows at hand are those of masks behind all committed tokens but the last; how many there are."""
    session = generation._session._proposer
    assert isinstance(session, MaskTokenRidersSession)
    if session.ready:
        ids = torch.tensor(committed(generation)[:-1] + [mask] * session.ready)
        expected = target.forward(ids, target.new_cache(), num_logits=session.ready).logits
        torch.testing.assert_close(session._rows, expected, rtol=0, atol=CLOSE)
    return session.ready


@pytest.mark.parametrize("family", ["llama", "gemma3", "gpt2"])
def test_greedy_ids_are_those_of_plain_decoding(family: str, tmp_path: Path) -> None:
    """Float64. Catches riders that reach the cache or a verified row, and rows of another span.

    Windows are 8 tokens long; rounds without drafts stand in between; horizons shrink and grow. A rank-two update of
    random weights drafts badly, so a second drafter proposes the target's favourites, most of which stand.
    """
    target = load_target(write_model(tmp_path / "model", FAMILIES[family]()), dtype="float64")
    mask = add_mask(target)
    generation = generate(
        target,
        PROMPT,
        drafter=MaskTokenRiders(target, mask, max_horizon=3),
        horizon=Forced([3, 0, 1, 2, 3]),
        sampling=GREEDY,
        max_new_tokens=24,
        ignore_stop_ids=True,
    )
    assert generation.prefill is not None
    sizes = [assert_rows_are_fresh(generation, target, mask)]
    for _ in generation:
        assert_in_step(generation)
        sizes.append(assert_rows_are_fresh(generation, target, mask))
    assert generation.token_ids == fresh_greedy(target, PROMPT, 24)[len(PROMPT) :]
    assert sizes[:6] == [3, 3, 1, 2, 3, 3] and sizes[-1] == 0
    assert [record.drafted for record in generation][:5] == [3, 0, 1, 2, 3]


CYCLE = 7


def counting(prefix: Tokens) -> Float[Tensor, " vocab"]:
    """Says the number after the last one, and knows what a mask (number ``CYCLE``) stands for."""
    real = [token for token in prefix if token < CYCLE]
    logits = torch.zeros(CYCLE, dtype=torch.float64)
    logits[(real[-1] + len(prefix) - len(real) + 1) % CYCLE] = 60.0
    return logits


@pytest.mark.parametrize("policy", ProposalPolicy)
@pytest.mark.parametrize("horizon", [1, 3])
def test_a_cyclic_language_is_drafted_without_an_error(horizon: int, policy: ProposalPolicy) -> None:
    """Every round drafts K tokens and emits K + 1. Catches masks that are one place off."""
    target = TableTarget(counting, vocab_size=CYCLE)
    drafter = MaskTokenRiders(target, CYCLE, max_horizon=4, growth=0, policy=policy)
    generation = generate(target, [2], drafter=drafter, horizon=horizon, max_new_tokens=25)
    assert generation.token_ids == [(3 + place) % CYCLE for place in range(25)]
    records = generation.records
    assert all(record.drafted == record.accepted == min(horizon, record.limit) for record in records)
    assert [record.riders for record in records[:3]] == [(horizon + 1) * horizon] * 3
    assert records[-1].riders == {1: 0, 3: 2 + 1}[horizon]  # as many as the places left behind each token
    assert drafter.name == f"mask-token:riders:{policy.value}"


@final
class Grid:
    """Stands in for a request's random numbers: each comes from an enumeration."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Replaces the package's numbers for the length of a test."""
        self.next: Callable[[Hashable], float] = lambda key: 0.0

        def uniforms(_: Streams, purpose: Purpose, position: int, count: int) -> Float64[Tensor, " count"]:
            if purpose is Purpose.EXPLORE:
                return torch.zeros(count, dtype=torch.float64)
            numbers = [self.next((purpose, position, place)) for place in range(count)]
            return torch.tensor(numbers, dtype=torch.float64)

        monkeypatch.setattr(Streams, "uniforms", uniforms)


TARGET_ROWS: Mapping[int, tuple[float, float]] = {0: (0.5, 0.5), 1: (0.0, 1.0), 2: (0.5, 0.5), 3: (0.5, 0.5)}
MASK_ROWS: Mapping[int, tuple[float, float]] = {0: (0.5, 0.5), 1: (0.0, 1.0), 2: (1.0, 0.0), 3: (0.5, 0.5)}
MASK = 2


def halves(prefix: Tokens) -> tuple[float, float]:
    """Two tokens and a mask; the laws of masks depend on the context and on their place."""
    masks = prefix.count(MASK)
    real = sum(token << place for place, token in enumerate(reversed(prefix[: len(prefix) - masks])))
    return MASK_ROWS[(real + masks) % 4] if masks else TARGET_ROWS[real % 4]


@pytest.mark.parametrize(
    ("horizons", "policy", "rule"),
    [([2], ProposalPolicy.SAMPLE, TokenLevel()), ([1, 0, 2], ProposalPolicy.ARGMAX, BlockVerification())],
    ids=["sampled", "argmax"],
)
def test_the_law_of_whole_answers_by_enumeration(
    horizons: list[int], policy: ProposalPolicy, rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 1 of the design, through the engine: every number that a request asks for runs over all its values.

    Laws and acceptance ratios are multiples of a half, so two values of each number are all that matter.
    """
    target = TableTarget(
        lambda prefix: torch.tensor(halves(prefix), dtype=torch.float64).log(), vocab_size=2, max_positions=99
    )
    grid, tokens = Grid(monkeypatch), 4

    def program(uniform: Callable[[Hashable], float]) -> Tokens:
        grid.next = uniform
        drafter = MaskTokenRiders(target, MASK, max_horizon=2, policy=policy)
        answer = generate(target, [1], drafter=drafter, horizon=Forced(horizons), max_new_tokens=tokens, rule=rule)
        return tuple(answer.token_ids)

    with without_shape_checks():
        law = run_law(program, 2)
    assert distance(law, chain_law(halves, (1,), tokens)) < 1e-12


@pytest.mark.parametrize(
    ("params", "policy"),
    [(SamplingParams(), ProposalPolicy.SAMPLE), (SamplingParams(temperature=0.7), ProposalPolicy.ARGMAX)],
    ids=["sampled", "argmax"],
)
def test_answers_have_the_targets_law(params: SamplingParams, policy: ProposalPolicy) -> None:
    """Chi-square with a policy that learns. Catches numbers shared by rounds, and horizons that look ahead."""
    table = torch.randn(VOCAB, VOCAB + 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def logits_of(prefix: Tokens) -> Float[Tensor, " vocab"]:
        masks = prefix.count(VOCAB)
        real = prefix[: len(prefix) - masks]
        if not masks:
            return table[real[-1], :VOCAB]
        return table.roll(masks + len(real) % 2, 1)[real[-1], :VOCAB]

    target = TableTarget(logits_of, vocab_size=VOCAB)
    drafter = MaskTokenRiders(target, VOCAB, max_horizon=4, policy=policy)
    horizon = Clocked(AMTP(epsilon=0.2))
    with without_shape_checks():
        answer = generate(
            target,
            [1],
            drafter=drafter,
            horizon=horizon,
            sampling=params,
            max_new_tokens=500,
            seed=SEED,
            rule=BlockVerification(),
        )
        values = p_values(answer, target, params)
    assert min(values.values()) > ALPHA / VOCAB, values
    assert 0 < answer.totals.accepted < answer.totals.drafted


def test_every_answer_is_the_one_that_it_would_be_alone() -> None:
    """Ragged rows with riders of their own, three answers to each prompt, stops, and room for the next in line."""
    target = tiny_target(stop_ids=tuple(range(0, 64, 9)))
    drafter = MaskTokenRiders(target, add_mask(target), max_horizon=3)
    prompts, pattern = [[7], [3, 1, 4, 1, 5], [60, 7]], Forced([3, 0, 1, 2])
    batch = generate_batch(
        target,
        prompts,
        num_return_sequences=3,
        drafter=drafter,
        horizon=pattern,
        max_new_tokens=16,
        max_batch=4,
        seed=8,
    )
    together = batch.token_ids
    for number, prompt in enumerate(prompts):
        alone = generate(
            target, prompt, drafter=drafter, horizon=pattern.clone(), max_new_tokens=16, seed=8, request=number
        )
        answer = batch.answers[3 * number]
        assert together[3 * number] == alone.token_ids
        assert [(record.accepted, record.riders) for record in answer] == [
            (record.accepted, record.riders) for record in alone
        ]
    assert len({len(ids) for ids in together}) > 1
    assert {answer.finish for answer in batch.answers} >= {Finish.STOP_ID}


def test_no_mask_stands_beyond_the_last_position(tmp_path: Path) -> None:
    """A table of 128 learned positions and a prompt of 120: catches riders without a place and a missed cap."""
    target = load_target(write_model(tmp_path / "model", FAMILIES["gpt2"]()), dtype="float64")
    drafter = MaskTokenRiders(target, add_mask(target), max_horizon=4, policy=ProposalPolicy.ARGMAX)
    generation = generate(
        target, [3] * 120, drafter=drafter, horizon=4, sampling=GREEDY, max_new_tokens=50, ignore_stop_ids=True
    )
    assert len(generation.token_ids) == 8
    assert [record.limit for record in generation][-1] == 0
    short = generate(target, [3] * 120, drafter=drafter, horizon=4, sampling=GREEDY, max_new_tokens=2)
    assert [(record.limit, record.riders) for record in short] == [(0, 0)]
