"""What a bandit on horizons is paid: tokens per second of a round, scaled to [0, 1]."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import final

from forerun.horizons.context import RoundContext, RoundFeedback
from forerun.horizons.cost import CostTable
from forerun.horizons.cost_model import CostModel
from forerun.horizons.rivals.deterministic import round_seconds


@final
class RoundReward:
    """min(1, rate / best rate), where the best rate is the table's largest (1 + k) / C(k), or the largest seen so far.

    Args:
        costs: copied; None scales by what is seen.
    """

    def __init__(self, costs: CostModel | None) -> None:
        self._costs = CostTable() if costs is None else costs.copy()
        self._best = 0.0
        if costs is not None:
            known = costs.seconds(max(costs.measured))
            self._best = max((1 + horizon) / seconds for horizon, seconds in enumerate(known))

    def observe(self, feedback: RoundFeedback) -> float:
        """The reward of a round, which also teaches the costs."""
        self._costs.observe_round(feedback)
        return self._scaled((1 + feedback.accepted) / feedback.seconds)

    def counterfactual(self, context: RoundContext, horizons: Sequence[int], accepted: int) -> dict[int, float]:
        """What rounds of these horizons would have been paid, where their costs are known.

        Args:
            context: of the round.
            horizons: to be judged, within its limit.
            accepted: drafts that stand, however many are drafted.
        """
        seconds = round_seconds(self._costs, context)
        return {
            horizon: self._scaled((1 + min(horizon, accepted)) / seconds[horizon])
            for horizon in horizons
            if seconds[horizon] < inf
        }

    def _scaled(self, rate: float) -> float:
        self._best = max(self._best, rate)
        return rate / self._best


def playable(arms: Sequence[int], limit: int) -> list[int]:
    """Arms within the limit; the limit alone where there is none."""
    return [arm for arm in arms if arm <= limit] or [limit]
