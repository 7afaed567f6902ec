"""Drafters and targets that misbehave: the answer stays the target's own, or one line says what is wrong."""

import math
from collections.abc import Sequence
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Float
from torch import Tensor
from transformers import LogitsProcessor

from forerun.distributions import SamplingParams
from forerun.drafters import DraftModel
from forerun.engine import RoundRecord, generate, generate_batch
from forerun.errors import ForerunError
from forerun.models import TableTarget
from tests.engine.test_greedy import run_in_step
from tests.support.drafters import GuessingDrafter, GuessingTree, reciting, wrong_at
from tests.support.horizons import Forced
from tests.support.targets import fresh_greedy, random_table

GREEDY = SamplingParams(temperature=0.0)
VOCAB = 6
TARGET = random_table(31, vocab_size=VOCAB)
PROMPT = [2, 4]
KNOWN = fresh_greedy(TARGET, PROMPT, 40)
ANSWER = KNOWN[len(PROMPT) :][:20]


def broken_model(bad: float, *, from_length: int) -> TableTarget:
    """A draft model whose logits are ``bad`` once the prefix has this many tokens."""
    inner = random_table(32, vocab_size=VOCAB)

    def logits_of(prefix: tuple[int, ...]) -> Float[Tensor, " vocab"]:
        if len(prefix) >= from_length:
            return torch.full((VOCAB,), bad, dtype=torch.float64)
        return inner.forward(torch.tensor(prefix), inner.new_cache(), num_logits=1).logits[0]

    return TableTarget(logits_of, vocab_size=VOCAB)


def test_always_wrong_drafts_cost_rounds_and_nothing_else() -> None:
    """C15. Catches accepted drafts that nobody tested."""
    drafter = wrong_at(KNOWN, lambda _: True, vocab_size=VOCAB)
    generation = generate(TARGET, PROMPT, drafter=drafter, horizon=3, sampling=GREEDY, max_new_tokens=20)
    run_in_step(generation)
    assert generation.token_ids == ANSWER
    assert generation.totals.tau == 1.0


def test_always_right_drafts_are_all_accepted() -> None:
    generation = generate(
        TARGET, PROMPT, drafter=reciting(KNOWN, vocab_size=VOCAB), horizon=3, sampling=GREEDY, max_new_tokens=20
    )
    run_in_step(generation)
    assert generation.token_ids == ANSWER
    assert generation.totals.accepted == generation.totals.drafted


@pytest.mark.parametrize("token", range(VOCAB))
def test_constant_drafts(token: int) -> None:
    """C15. Catches id 0 taken for padding or for "nothing"."""
    drafter = GuessingDrafter(lambda _, horizon: [token] * horizon, vocab_size=VOCAB)
    generation = generate(TARGET, PROMPT, drafter=drafter, horizon=4, sampling=GREEDY, max_new_tokens=20)
    run_in_step(generation)
    assert generation.token_ids == ANSWER


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_draft_row_that_is_no_law_ends_the_draft_and_is_counted(bad: float, temperature: float) -> None:
    """Catches a NaN row that is drawn from (token 0, or the last id), and a cache that keeps the half draft."""
    sampling = SamplingParams(temperature=temperature)
    drafter = DraftModel(broken_model(bad, from_length=8), TARGET)
    generation = generate(TARGET, PROMPT, drafter=drafter, horizon=4, sampling=sampling, max_new_tokens=20)
    records = run_in_step(generation)
    for record, context_length in zip(records, _context_lengths(records), strict=True):
        asked = record.choice.horizon
        assert record.drafted == max(0, min(asked, 8 - context_length))
        assert record.cut_short == (record.drafted < asked)
    assert generation.totals.rounds_cut_short == sum(record.cut_short for record in records) > 0
    if temperature == 0.0:
        assert generation.token_ids == ANSWER


def _context_lengths(records: Sequence[RoundRecord]) -> list[int]:
    lengths, length = [], len(PROMPT) + 1
    for record in records:
        lengths.append(length)
        length += len(record.token_ids)
    return lengths


def test_drafts_out_of_range_are_an_error_that_names_them() -> None:
    drafter = GuessingDrafter(lambda _, horizon: [VOCAB] * horizon, vocab_size=VOCAB)
    with pytest.raises(ForerunError, match=r"do not all lie in a vocabulary of 6"):
        list(generate(TARGET, PROMPT, drafter=drafter, horizon=2, sampling=GREEDY))


def test_too_many_drafts_are_an_error_that_names_the_drafter() -> None:
    """Catches drafts beyond the cap, and a horizon that the policy never chose."""
    drafter = GuessingDrafter(lambda _, horizon: [0] * (horizon + 1), vocab_size=VOCAB)
    with pytest.raises(ForerunError, match="guessing drafted 3 tokens where 2 were asked for"):
        list(generate(TARGET, PROMPT, drafter=drafter, horizon=2, sampling=GREEDY))


def test_a_drafter_of_another_vocabulary_is_an_error() -> None:
    drafter = GuessingDrafter(lambda _, horizon: [0] * horizon, vocab_size=VOCAB - 1)
    with pytest.raises(ForerunError, match="over 5"):
        list(generate(TARGET, PROMPT, drafter=drafter, horizon=2, sampling=GREEDY))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("at", [len(PROMPT), len(PROMPT) + 3])
def test_a_target_row_that_is_no_law_names_request_and_position(bad: float, at: int) -> None:
    """Catches NaN that is argmaxed to token 0, and an error that says neither whose row it was nor where."""

    def logits_of(prefix: tuple[int, ...]) -> Float[Tensor, " vocab"]:
        if len(prefix) == at and prefix[0] == 3:
            return torch.full((VOCAB,), bad, dtype=torch.float64)
        return TARGET.forward(torch.tensor(prefix), TARGET.new_cache(), num_logits=1).logits[0]

    broken = TableTarget(logits_of, vocab_size=VOCAB)
    drafter = GuessingDrafter(lambda _, horizon: [0] * horizon, vocab_size=VOCAB)
    batch = generate_batch(broken, [PROMPT, [3, 3]], drafter=drafter, horizon=2, max_new_tokens=9)
    with pytest.raises(ForerunError) as error:
        list(batch)
    assert f"request 1: table gave no usable law for position {at} " in str(error.value)
    assert "\n" not in str(error.value)


class Staircase(LogitsProcessor):
    """A grammar: each token must be one more than the last; after a broken rule nothing at all may follow."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        ids = input_ids[0].tolist()
        legal = all(later == (former + 1) % VOCAB for former, later in pairwise(ids))
        allowed = torch.full_like(scores, -math.inf)
        if legal:
            allowed[0, (ids[-1] + 1) % VOCAB] = 0.0
        return allowed


@pytest.mark.parametrize("place", range(1, 5))
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_grammar_that_knows_no_way_on_after_an_illegal_draft(place: int, temperature: float) -> None:
    """Catches an error about rows that plain decoding never meets: the illegal draft is rejected for certain."""
    known = [token % VOCAB for token in range(1, 40)]
    drafter = wrong_at(known, lambda at: at == place, vocab_size=VOCAB)
    generation = generate(
        TARGET,
        [1],
        drafter=drafter,
        horizon=4,
        sampling=SamplingParams(temperature=temperature, processors=(Staircase(),)),
        max_new_tokens=18,
    )
    run_in_step(generation)
    assert generation.token_ids == known[1:19]
    assert all(record.accepted in (place - 1, record.drafted) for record in generation)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_grammar_prunes_the_branches_of_a_tree(temperature: float) -> None:
    """Catches an error about rows behind an illegal branch; the second-best sibling is always illegal here."""
    raw = GuessingTree(lambda last: ((last + 1) % VOCAB, (last + 2) % VOCAB), vocab_size=VOCAB)
    generation = generate(
        TARGET,
        [1],
        drafter=raw,
        horizon=2,
        sampling=SamplingParams(temperature=temperature, processors=(Staircase(),)),
        max_new_tokens=18,
    )
    run_in_step(generation)
    assert generation.token_ids == [token % VOCAB for token in range(2, 20)]
    assert all(record.accepted == record.depth for record in generation)


def test_a_grammar_with_no_way_at_all_is_an_error() -> None:
    """Catches a dead end that is taken for an illegal draft."""
    with pytest.raises(ForerunError, match="request 0: table gave no usable law for position 2"):
        list(generate(TARGET, [1, 1], sampling=SamplingParams(processors=(Staircase(),)), max_new_tokens=5))


@settings(max_examples=40)
@given(
    seed=st.integers(0, 3),
    prompts=st.lists(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=6), min_size=1, max_size=4),
    horizons=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    stop_at=st.integers(0, 15),
    cap=st.integers(1, 16),
    max_batch=st.integers(1, 4),
)
def test_any_batch_gives_the_plain_answers(
    seed: int, prompts: list[list[int]], horizons: list[int], stop_at: int, cap: int, max_batch: int
) -> None:
    """Catches wrong borders of a block in any company; caches are checked against committed tokens in every round."""
    plain = random_table(seed, vocab_size=VOCAB)
    answers = [fresh_greedy(plain, prompt, 16)[len(prompt) :] for prompt in prompts]
    stop_id = answers[0][stop_at]
    target = random_table(seed, vocab_size=VOCAB, stop_ids=(stop_id,))
    batch = generate_batch(
        target,
        prompts,
        drafter=DraftModel(random_table(seed + 1, vocab_size=VOCAB), target),
        horizon=Forced(horizons),
        sampling=GREEDY,
        max_new_tokens=cap,
        max_batch=max_batch,
    )
    for answer, ids in zip(answers, batch.token_ids, strict=True):
        until_stop = answer[: answer.index(stop_id) + 1] if stop_id in answer else answer
        assert ids == until_stop[:cap]
