"""A policy that is told what rounds should cost instead of what the clock said, so that live rounds can be repeated."""

from __future__ import annotations

from dataclasses import replace
from typing import final

import numpy as np

from forerun.evaluation.replay.cost_regime import CostRegime
from forerun.horizons import Choice, HorizonPolicy, RoundContext, RoundFeedback, Signal


@final
class Priced(HorizonPolicy):
    """Another policy under a cost regime.

    Args:
        inner: decides; learns from the regime's seconds.
        costs: of rounds.
    """

    def __init__(self, inner: HorizonPolicy, costs: CostRegime) -> None:
        self.inner = inner
        self.costs = costs

    @property
    def name(self) -> str:
        """The other's."""
        return self.inner.name

    @property
    def wants(self) -> frozenset[Signal]:
        """The other's."""
        return self.inner.wants

    @property
    def horizon_dependent(self) -> bool:
        """The other's."""
        return self.inner.horizon_dependent

    def propose(self, context: RoundContext, *, uniform: float) -> Choice:
        """As the other says."""
        return self.inner.propose(context, uniform=uniform)

    def observe(self, feedback: RoundFeedback) -> None:
        """With the regime's seconds; what draft and verification took by the clock is left out.

        Draft laws that a stop rule looked at without using them are not told to a policy, so they are not charged here.
        """
        drafted = np.array([feedback.drafted])
        length = np.array([feedback.context.context_length])
        seconds = float(self.costs.round_seconds(drafted, length)[0, 0])
        if feedback.accepted < feedback.drafted:
            seconds += float(self.costs.rejection_seconds(drafted)[0])
        self.inner.observe(
            replace(feedback, seconds=seconds, draft_seconds=None, verify_seconds=None, verify_width=None)
        )

    def clone(self) -> Priced:
        """A clone of the other under the same regime."""
        return Priced(self.inner.clone(), self.costs)
