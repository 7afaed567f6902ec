"""Trees through the whole engine: ids, laws, caches, stops."""

import copy
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from forerun.distributions import SamplingParams
from forerun.drafters import DraftModelTree, PromptLookup
from forerun.engine import Finish, generate, generate_batch
from forerun.errors import ForerunError
from forerun.horizons import AMTP, HorizonPolicy, TreeAMTP, num_nodes
from forerun.models import TransformersTarget, load_target, tiny_target
from forerun.verification import Candidates, TargetOnly, TreeAgreement, TreeRule, TreeTokenLevel
from tests.engine.test_greedy import run_in_step
from tests.engine.test_law import ALPHA, SEED, TARGET, TOKENS, VOCAB, p_values
from tests.support.families import FAMILIES, write_model
from tests.support.horizons import Clocked, Forced
from tests.support.targets import fresh_greedy, random_table

GREEDY, COOL = SamplingParams(temperature=0.0), SamplingParams(temperature=0.3)
PROMPT = (5, 9, 2, 40, 7, 7)


def disturbed(target: TransformersTarget, scale: float) -> TransformersTarget:
    """A copy of the target that often agrees with it and often does not."""
    model = copy.deepcopy(target.model)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in model.parameters():
            noise = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
            weight.add_(noise, alpha=scale * float(weight.std()))
    return TransformersTarget(model, None, name="disturbed")


@pytest.mark.parametrize(("family", "scale"), [("llama", 0.1), ("gemma3", 0.5), ("gpt2", 0.1)])
def test_greedy_ids_are_those_of_plain_decoding(family: str, scale: float, tmp_path: Path) -> None:
    """Float64. Catches tree masks, positions, and a cache that keeps the wrong branch; the window is 8 tokens long.

    Rounds without drafts and of smaller depths stand in between, and the caches are looked at after every round.
    """
    target = load_target(write_model(tmp_path / "model", FAMILIES[family]()), dtype="float64")
    small = disturbed(target, scale)
    drafter = DraftModelTree(small, target, branching=(3, 2, 1))
    generation = generate(
        target,
        PROMPT,
        drafter=drafter,
        horizon=Forced([3, 0, 2, 3, 1]),
        sampling=GREEDY,
        max_new_tokens=40,
        ignore_stop_ids=True,
    )
    records = run_in_step(generation)
    assert generation.token_ids == fresh_greedy(target, PROMPT, 40)[len(PROMPT) :]
    assert max(record.accepted for record in records) >= 2
    assert any(record.accepted < record.depth for record in records)
    assert {record.drafted for record in records if record.choice.horizon == 3} == {15}


def test_every_branch_is_taken() -> None:
    """Catches an engine that keeps the first tokens of a block instead of the path: later children must be accepted."""
    target = tiny_target()
    drafter = DraftModelTree(disturbed(target, 0.3), target, branching=(4, 2))
    generation = generate(target, PROMPT, drafter=drafter, horizon=2, sampling=GREEDY, max_new_tokens=60)
    run_in_step(generation)
    assert generation.token_ids == fresh_greedy(target, PROMPT, 60)[len(PROMPT) :]
    chain = DraftModelTree(disturbed(target, 0.3), target, branching=(1, 1))
    alone = generate(target, PROMPT, drafter=chain, horizon=2, sampling=GREEDY, max_new_tokens=60)
    later = generation.totals.accepted - alone.totals.accepted
    assert alone.token_ids == generation.token_ids
    assert later > 0


@pytest.mark.parametrize(
    ("candidates", "rule", "params", "policy"),
    [
        (Candidates.DETERMINISTIC, TreeTokenLevel(), SamplingParams(), AMTP(epsilon=0.3)),
        (Candidates.WITH_REPLACEMENT, TreeTokenLevel(), SamplingParams(temperature=0.8), TreeAMTP(max_nodes=6)),
        (Candidates.WITHOUT_REPLACEMENT, TreeTokenLevel(), SamplingParams(top_p=0.9), TreeAMTP(max_nodes=6)),
        pytest.param(
            Candidates.WITHOUT_REPLACEMENT, TargetOnly(), SamplingParams(), AMTP(epsilon=0.3), marks=pytest.mark.slow
        ),
        pytest.param(
            Candidates.WITHOUT_REPLACEMENT,
            TreeAgreement(),
            SamplingParams(top_k=3),
            AMTP(epsilon=0.3),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["top-k", "independent, shaped", "distinct, shaped", "distinct, target-only", "distinct, agreement"],
)
@pytest.mark.usefixtures("unchecked_shapes")
def test_answers_have_the_targets_law(
    candidates: Candidates, rule: TreeRule, params: SamplingParams, policy: HorizonPolicy
) -> None:
    """Chi-square; catches rows of the wrong node, shared numbers, and a feedback that lets a policy look ahead."""
    small = random_table(12, vocab_size=VOCAB, order=2)
    generation = generate(
        TARGET,
        [1],
        drafter=DraftModelTree(small, TARGET, branching=(2, 2), candidates=candidates),
        horizon=Clocked(policy),
        sampling=params,
        max_new_tokens=TOKENS,
        seed=SEED,
        rule=rule,
    )
    values = p_values(generation, TARGET, params)
    assert min(values.values()) > ALPHA / VOCAB, values
    assert 0 < generation.totals.accepted < generation.totals.drafted


def test_the_chosen_shape_is_drawn_and_told() -> None:
    """Catches a shape that the drafter keeps to itself, and feedback about depths that the path never reached."""
    target = tiny_target()
    shapes = [(2, 3), (), (5,), (1, 1, 2), (64, 1, 1)]
    policy = Forced(shapes)
    drafter = DraftModelTree(disturbed(target, 0.3), target, branching=(9, 9, 9))
    generation = generate(target, PROMPT, drafter=drafter, horizon=policy, sampling=COOL, max_new_tokens=40)
    records = run_in_step(generation)
    for record, told, shape in zip(records[:-3], policy.feedback, shapes * 9, strict=False):
        assert (record.drafted, record.depth, told.tree_depth or 0) == (num_nodes(shape), len(shape), len(shape))
        tried = min(record.accepted + 1, len(shape))
        assert told.accept_probabilities == (1.0,) * record.accepted + (0.0,) * (tried - record.accepted)
        assert len(told.overlaps) == tried and told.verify_width == 1 + record.drafted
    assert {min(record.accepted, 2) for record in records} == {0, 1, 2}


def test_policies_and_drafters_that_do_not_fit_are_refused() -> None:
    """Before anything runs: a policy that shapes trees over a drafter of chains."""
    target = tiny_target()
    with pytest.raises(ForerunError, match="tree-amtp-9 chooses the shapes of trees and prompt-lookup drafts chains"):
        generate(target, PROMPT, drafter=PromptLookup(target.vocab_size), horizon=TreeAMTP(max_nodes=9))


def test_a_stop_inside_an_accepted_path_ends_the_answer() -> None:
    """The stop id stands at the first level of a path of two: nothing after it is emitted, and the policy is told."""
    plain = fresh_greedy(tiny_target(), PROMPT, 20)[len(PROMPT) :]
    place = next(place for place in range(2, 20) if plain[place] not in plain[:place] and place % 3 == 1)
    target = tiny_target(stop_ids=(plain[place],))
    policy = Forced([2])
    # The target as its own drafter: paths of two are accepted whole, so answers go on three tokens at a time.
    drafter = DraftModelTree(tiny_target(), target, branching=(2, 1))
    generation = generate(target, PROMPT, drafter=drafter, horizon=policy, sampling=GREEDY, max_new_tokens=20)
    records = generation.records
    assert generation.token_ids == plain[: place + 1]
    assert (generation.finish, records[-1].accepted, len(records[-1].token_ids)) == (Finish.STOP_ID, 2, 1)
    assert policy.feedback[-1].censored == 1


def ids_of(prompts: Sequence[Sequence[int]], target: TransformersTarget, drafter: DraftModelTree) -> list[list[int]]:
    return [
        generate(target, prompt, drafter=drafter, horizon=2, max_new_tokens=20, seed=4, request=index).token_ids
        for index, prompt in enumerate(prompts)
    ]


def test_a_request_writes_the_same_alone_and_in_a_batch() -> None:
    """Trees of different sizes after contexts of different lengths in one pass, with sampled candidates."""
    target = tiny_target()
    drafter = DraftModelTree(
        disturbed(target, 0.2), target, branching=(3, 2), candidates=Candidates.WITHOUT_REPLACEMENT
    )
    prompts = [PROMPT, PROMPT[:2], (1, 2, 3, 4, 5, 6, 7, 8, 9)]
    batch = generate_batch(target, prompts, drafter=drafter, horizon=2, max_new_tokens=20, seed=4)
    assert batch.token_ids == ids_of(prompts, target, drafter)
