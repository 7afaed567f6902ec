"""Drafts that a policy's rule ends: what the rule is shown, and what the engine makes of its answers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import pytest
import torch

from forerun.distributions import SamplingParams
from forerun.drafters import DraftModel
from forerun.engine import generate
from forerun.engine.stop_rule import RuleStop
from forerun.errors import ForerunError
from forerun.horizons import Choice, DraftStatistics, DrawnToken, HorizonPolicy, RoundContext, RoundFeedback, StopRule
from forerun.verification import Agreement, TokenLevel
from tests.support.drafters import GuessingTree
from tests.support.targets import random_table

VOCAB = 5


@final
@dataclass(frozen=True)
class Below(StopRule):
    """Goes on while every token is likely enough; drops the unlikely one where it may."""

    threshold: float
    drops: bool = False

    @property
    def exact(self) -> bool:
        """Not if it drops."""
        return not self.drops

    def draws(self, drawn: Sequence[DrawnToken], law: DraftStatistics) -> bool:
        """Always."""
        return True

    def continues(self, drawn: Sequence[DrawnToken]) -> bool:
        """Not after an unlikely token."""
        return drawn[-1].prob >= self.threshold

    def submits(self, drawn: Sequence[DrawnToken]) -> int:
        """All, or all but an unlikely last one."""
        return len(drawn) - (self.drops and drawn[-1].prob < self.threshold)


@final
class Stopping(HorizonPolicy):
    """Four tokens under a rule."""

    def __init__(self, rule: StopRule) -> None:
        """Stores the rule."""
        self.rule = rule
        self.feedback: list[RoundFeedback] = []

    name = "stopping"
    ends_drafts = True

    @property
    def exact(self) -> bool:
        """As the rule."""
        return self.rule.exact

    def propose(self, context: RoundContext, *, uniform: float) -> Choice:
        """As many as the limit allows."""
        horizon = min(4, context.limit)
        propensities = (1.0,) * horizon + (0.0,) * (context.limit - horizon)
        return Choice(horizon=horizon, planned=horizon, explored=False, propensities=propensities, stop=self.rule)

    def observe(self, feedback: RoundFeedback) -> None:
        """Remembers."""
        self.feedback.append(feedback)

    def clone(self) -> "Stopping":
        """The same rule."""
        return Stopping(self.rule)


def test_statistics_are_those_of_the_row() -> None:
    """Catches entropy in bits, a margin of logarithms, log-odds taken for a probability, a forbidden token's NaN."""
    stop = RuleStop(Below(0.2))
    assert stop.before(torch.tensor([0.5, 0.25, 0.25, 0.0]).log(), math.log(3.0))
    assert not stop.after(3)
    assert stop.submitted == 1
    (token,) = stop.drawn
    assert token.law.entropy == pytest.approx(1.5 * math.log(2.0))
    assert (token.law.top_prob, token.law.margin) == pytest.approx((0.5, 0.25))
    assert token.law.confidence == pytest.approx(0.75)
    assert token.prob == 0.0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("drops", [False, True])
def test_a_rule_ends_drafts_in_the_engine(temperature: float, drops: bool) -> None:
    """Catches a stop that is not handed on, statistics of other tokens, and greedy drafting without statistics."""
    policy = Stopping(Below(0.35, drops))
    answer = generate(
        random_table(4, vocab_size=VOCAB, order=2), [1, 0], max_new_tokens=60, horizon=policy,
        drafter=DraftModel(random_table(5, vocab_size=VOCAB, order=1), random_table(4, vocab_size=VOCAB, order=2)),
        sampling=SamplingParams(temperature=temperature),
    )  # fmt: skip
    lengths = set()
    assert answer.records
    for told in policy.feedback:
        lengths.add(told.drafted)
        assert len(told.drawn) == told.drafted
        assert told.verify_width == told.drafted + 1  # what is dropped is not paid for (sglang pull request 30204)
        assert all(token.prob >= 0.35 for token in told.drawn[:-1])
        if told.drafted < told.choice.horizon and not drops:
            assert told.drawn[-1].prob < 0.35
        if drops:
            assert all(token.prob >= 0.35 for token in told.drawn)
    assert len(lengths) > 2


@pytest.mark.parametrize(("drops", "rule", "exact"), [(False, TokenLevel(), True), (True, TokenLevel(), False),
                                                      (True, Agreement(), True)])  # fmt: skip
def test_dropping_tokens_is_stamped(drops: bool, rule: TokenLevel | Agreement, exact: bool) -> None:
    """Catches a biased combination that calls itself exact, and an exact one that does not."""
    target = random_table(4, vocab_size=VOCAB, order=2)
    drafter = DraftModel(random_table(5, vocab_size=VOCAB, order=1), target)
    answer = generate(
        target, [1, 0], max_new_tokens=4, horizon=Stopping(Below(0.35, drops)), drafter=drafter, rule=rule
    )
    assert answer.exact is exact


def test_trees_are_not_chains() -> None:
    """Catches a stop rule that is silently left out."""
    target = random_table(4, vocab_size=VOCAB, order=2)
    tree = GuessingTree(lambda token: (token, (token + 1) % VOCAB), vocab_size=VOCAB)
    with pytest.raises(ForerunError, match="stopping ends chains"):
        generate(target, [1, 0], max_new_tokens=9, horizon=Stopping(Below(0.3)), drafter=tree)
