"""A joint policy through generate_batch: the plain text at temperature 0, the plain law above, one learner for all."""

from itertools import pairwise
from typing import final

import pytest
import torch

from forerun.distributions import SamplingParams
from forerun.drafters import DraftModel
from forerun.engine import generate, generate_batch
from forerun.errors import ForerunError
from forerun.horizons import (
    AMTP,
    Choice,
    CostSurface,
    Drafting,
    DraftTime,
    FeatureLevel,
    HorizonPolicy,
    JointAMTP,
    PassTime,
    RoundContext,
    RoundFeedback,
    Shape,
    Signal,
)
from tests.exactness.statistics import chi_square_p_value
from tests.support.drafters import GuessingDrafter
from tests.support.horizons import Forced
from tests.support.targets import fresh_greedy, random_table

VOCAB = 6
TARGET = random_table(5, vocab_size=VOCAB)
DRAFTER = DraftModel(random_table(6, vocab_size=VOCAB), TARGET)
PROMPTS = [[1, 2], [3], [0, 4, 4], [5]]
GREEDY = SamplingParams(temperature=0.0)


def surface() -> CostSurface:
    passes = [
        PassTime(width=width, context_length=30, batch_size=rows, seconds=(1.0 + 0.04 * width,) * 3)
        for rows in (1, 2, 3, 4)
        for width in (rows, 5 * rows)
    ]
    return CostSurface.from_profile(passes, [DraftTime(tokens=k, seconds=(0.02 * k,) * 3) for k in (1, 4, 8)])


@pytest.mark.parametrize("shape", list(Shape))
@pytest.mark.parametrize("costs", [None, surface()], ids=["unknown costs", "profile"])
def test_answers_are_the_plain_ones_at_temperature_0(shape: Shape, costs: CostSurface | None) -> None:
    """Rows end at different times, so batch sizes change. Catches choices handed to the wrong row."""
    joint = JointAMTP(costs=costs, shape=shape, epsilon=0.2, warmup_rounds=4)
    batch = generate_batch(
        TARGET, PROMPTS, drafter=DRAFTER, horizon=joint, sampling=GREEDY, max_new_tokens=24, max_batch=3
    )
    plain = [generate(TARGET, prompt, sampling=GREEDY, max_new_tokens=24).token_ids for prompt in PROMPTS]
    assert batch.token_ids == plain
    assert batch.exact
    rounds = [record for answer in batch.answers for record in answer.records]
    assert joint.state_dict()["rounds"] == len(rounds)  # every answer taught the one learner
    assert len({record.choice.horizon for record in rounds}) > 1


@pytest.mark.usefixtures("unchecked_shapes")
def test_answers_have_the_targets_law() -> None:
    """What follows each token, over 4 answers of 150 tokens; chi-square at alpha 1e-4 over all tests, seed 7.

    Catches horizons that look at the drafts they govern, and one request's coin used for another's drafts.
    """
    target = random_table(8, vocab_size=4, order=1)
    drafter = DraftModel(random_table(9, vocab_size=4, order=1), target, max_horizon=5)
    joint = JointAMTP(costs=surface(), epsilon=0.2, warmup_rounds=0, drafting=Drafting.TOGETHER)
    batch = generate_batch(
        target, [[1]], num_return_sequences=4, drafter=drafter, horizon=joint, max_new_tokens=150, seed=7
    )
    counts = {before: [0] * 4 for before in range(4)}
    for answer in batch.token_ids:
        for before, after in pairwise([1, *answer]):
            counts[before][after] += 1
    values = {
        before: chi_square_p_value(
            counts[before], target.forward(torch.tensor([before]), target.new_cache()).logits[-1].softmax(-1).tolist()
        )
        for before in range(4)
    }
    assert min(values.values()) > 1e-4 / 4, values
    assert 0 < batch.totals.accepted < batch.totals.drafted
    assert {0 < record.choice.horizon < 5 for answer in batch.answers for record in answer} == {True, False}


def test_a_block_drafter_drafts_its_whole_block_and_the_horizon_is_verified() -> None:
    """Catches short blocks (whose drafts are another law than the hazards learned), and wide verifications."""

    def guess(committed: tuple[int, ...], horizon: int) -> list[int]:
        """The target's own words in whole blocks, nonsense in shorter ones."""
        right = fresh_greedy(TARGET, committed, horizon)[-horizon:]
        return right if horizon == 4 else [(token + 1) % VOCAB for token in right]

    drafter = GuessingDrafter(guess, vocab_size=VOCAB, max_horizon=4)
    drafter.prefix_consistent = False
    answer = generate(TARGET, [1, 2], drafter=drafter, horizon=Forced([2, 0, 3, 1]), sampling=GREEDY, max_new_tokens=20)
    assert answer.token_ids == fresh_greedy(TARGET, [1, 2], 20)[2:]
    assert set(drafter.sessions[0].proposed) == {4}
    for record in answer.records[:-1]:
        assert record.drafted == record.choice.horizon == record.accepted  # greedy drafts of the whole block all stand


@final
class Watching(HorizonPolicy):
    """Another policy, and what it is told."""

    name = "watching"

    def __init__(self, inner: HorizonPolicy) -> None:
        self.inner = inner
        self.contexts: list[RoundContext] = []

    @property
    def wants(self) -> frozenset[Signal]:
        return self.inner.wants

    def propose(self, context: RoundContext, *, uniform: float) -> Choice:
        self.contexts.append(context)
        return self.inner.propose(context, uniform=uniform)

    def observe(self, feedback: RoundFeedback) -> None:
        assert feedback.verify_width == 1 + feedback.drafted
        assert feedback.draft_seconds is not None and feedback.verify_seconds is not None
        assert feedback.draft_seconds + feedback.verify_seconds <= feedback.seconds
        self.inner.observe(feedback)

    def clone(self) -> "Watching":
        return Watching(self.inner.clone())


def test_signals_reach_the_policy_as_far_as_it_asks() -> None:
    """F3 asks for a hidden state even where the drafter reads no layer; F0 asks for nothing and gets nothing."""
    seen = {}
    for level in (FeatureLevel.F0, FeatureLevel.F3):
        policy = Watching(AMTP(features=level))
        generate(TARGET, [1, 2], drafter=DRAFTER, horizon=policy, max_new_tokens=8).records.clear()
        seen[level] = policy.contexts
    assert all(context.target_entropy is None and context.hidden is None for context in seen[FeatureLevel.F0])
    assert all(context.suffix_match is None for context in seen[FeatureLevel.F0])
    for context in seen[FeatureLevel.F3]:
        assert context.hidden is not None and len(context.hidden) == 32
        assert context.target_entropy is not None and context.suffix_match is not None
    with pytest.raises(
        ForerunError, match="which model:table does not have; take medusa, parallel-heads or dflash, or features F3"
    ):
        generate(TARGET, [1], drafter=DRAFTER, horizon=AMTP(features=FeatureLevel.F4))
