"""SpecDec++: stop when a rejection among the drafts has become likely, by a head that predicts acceptance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, log1p
from typing import final

import numpy as np

from forerun.errors import ForerunError
from forerun.horizons.context import RoundContext, RoundFeedback
from forerun.horizons.rivals.deterministic import DeterministicPolicy
from forerun.horizons.rivals.logistic import fit_logistic
from forerun.horizons.stop import DraftStatistics, DrawnToken, StopRule


@final
@dataclass(frozen=True, slots=True)
class AcceptanceHead:
    """P(a drawn token stands, given that those before it stand), logistic in numbers about token and law.

    The original reads the drafter's hidden state (a three-layer network); this one reads what any drafter has: entropy,
    top probability, margin, the token's own probability, and log(1 + place).

    Attributes:
        weights: of 1 and the five numbers.
    """

    weights: tuple[float, ...]

    def probability(self, token: DrawnToken, place: int) -> float:
        """For the token at a place, counted from 1."""
        logit = sum(weight * number for weight, number in zip(self.weights, _numbers(token, place), strict=True))
        return 1.0 / (1.0 + exp(-min(max(logit, -30.0), 30.0)))

    @classmethod
    def fit(
        cls, rounds: Iterable[RoundFeedback], *, mismatch_weight: float = 6.0, ridge: float = 1.0
    ) -> AcceptanceHead:
        """A head from recorded rounds, offline: weighted logistic regression over the judged tokens.

        Args:
            rounds: with the statistics of their drawn tokens.
            mismatch_weight: of a rejected token in the loss.
            ridge: on all weights.

        Raises:
            ForerunError: no judged token has statistics.
        """
        rows, labels = [], []
        for told in rounds:
            for index, token in enumerate(told.drawn[: min(told.accepted + 1, told.counted)]):
                rows.append(_numbers(token, index + 1))
                labels.append(index < told.accepted)
        if not rows:
            raise ForerunError("no drawn token was judged: record rounds of a policy that has a stop rule")
        weights = [1.0 if label else mismatch_weight for label in labels]
        fitted = fit_logistic(np.array(rows), np.array(labels, dtype=float), np.array(weights), ridge=ridge)
        return cls(tuple(fitted.tolist()))


@final
@dataclass(frozen=True, slots=True)
class RejectionLikely(StopRule):
    """Stop behind a kept token once 1 - prod of acceptance probabilities exceeds the threshold.

    Attributes:
        threshold: largest probability of some rejection.
        shortest: tokens that are always drawn.
        head: predicts; without one the drafter's confidence does, or else the token's own draft probability.
    """

    threshold: float
    shortest: int
    head: AcceptanceHead | None

    def draws(self, drawn: Sequence[DrawnToken], law: DraftStatistics) -> bool:
        """Always."""
        return True

    def continues(self, drawn: Sequence[DrawnToken]) -> bool:
        """The optimal policy is such a threshold (the paper's theorem)."""
        standing = 1.0
        for index, token in enumerate(drawn):
            standing *= self._acceptance(token, index + 1)
        return len(drawn) < self.shortest or 1.0 - standing <= self.threshold

    def _acceptance(self, token: DrawnToken, place: int) -> float:
        if self.head is not None:
            return self.head.probability(token, place)
        return token.prob if token.law.confidence is None else token.law.confidence


@final
class SpecDec(DeterministicPolicy):
    """Drafts under ``RejectionLikely``; the head is trained offline and does not change.

    Args:
        head: see ``RejectionLikely``.
        threshold: of the rule.
        shortest: fewest tokens.
        longest: most tokens.

    Raises:
        ForerunError: a threshold outside [0, 1], or lengths that do not rise from 1.

    References:
        arXiv 2405.19715 and the released code: threshold 0.3, length 2 to 20, mismatch weight 6. The head's inputs are
        others here, hence "style".
    """

    def __init__(
        self, *, head: AcceptanceHead | None = None, threshold: float = 0.3, shortest: int = 2, longest: int = 20
    ) -> None:
        if not 0.0 <= threshold <= 1.0 or not 1 <= shortest <= longest:
            raise ForerunError(
                "SpecDec++ needs a threshold in [0, 1] and 1 <= shortest <= longest, got "
                f"{threshold}, {shortest} and {longest}"
            )
        self.head = head
        self.threshold = threshold
        self.shortest = shortest
        self.longest = longest

    @property
    def name(self) -> str:
        """`specdec-style`."""
        return "specdec-style"

    def horizon_for(self, context: RoundContext) -> int:
        """The longest."""
        return self.longest

    ends_drafts = True

    def stop_for(self, context: RoundContext) -> RejectionLikely:
        """The rule."""
        return RejectionLikely(self.threshold, self.shortest, self.head)

    def observe(self, feedback: RoundFeedback) -> None:
        """Nothing is learned online."""

    def clone(self) -> SpecDec:
        """With the same head."""
        return SpecDec(head=self.head, threshold=self.threshold, shortest=self.shortest, longest=self.longest)


def _numbers(token: DrawnToken, place: int) -> tuple[float, ...]:
    law = token.law
    return (1.0, law.entropy, law.top_prob, law.margin, token.prob, log1p(place))
