"""A bandit for each cell of a small table: how many requests there are, and how uncertain the target is."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import final

from forerun.errors import ForerunError
from forerun.horizons.context import RoundContext, RoundFeedback
from forerun.horizons.cost_model import CostModel
from forerun.horizons.rivals.deterministic import DeterministicPolicy
from forerun.horizons.rivals.reward import RoundReward, playable
from forerun.horizons.rivals.ucb import ArmStatistics
from forerun.horizons.signals import Signal

ENTROPIES = 300
"""Past rounds whose entropies set the terciles."""


@final
class TableBandit(DeterministicPolicy):
    """UCB1 over horizons in the cell of (batch size, entropy); reward: tokens per second, scaled to [0, 1].

    Batch sizes 1, 2-3, 4-7, 8-15 and so on are buckets. The entropy of the target law behind the last committed token
    falls into the lower, middle or upper third of those of the last 300 rounds; into the middle while it is unknown or
    fewer than three are known. An arm is paid only by rounds that drafted exactly its horizon.

    Args:
        costs: scales the reward; None scales by the best rate seen.
        arms: horizons.
        weight: bonus sqrt(weight ln n / n_arm) within a cell.

    Raises:
        ForerunError: no arms, a negative one, or a negative weight.

    References:
        Nightjar, arXiv 2512.22420, has a bandit for each batch size, horizon 0 included; the entropy is added as the
        simplest context.
    """

    def __init__(
        self, *, costs: CostModel | None = None, arms: tuple[int, ...] = (0, 1, 2, 4, 8), weight: float = 2.0
    ) -> None:
        if not arms or min(arms) < 0 or weight < 0.0:
            raise ForerunError(
                f"a table bandit needs arms of 0 or more and a weight of 0 or more, got {arms} and {weight}"
            )
        self.costs = costs
        self.arms = arms
        self.weight = weight
        self._reward = RoundReward(costs)
        self._cells: dict[tuple[int, int], ArmStatistics[int]] = {}
        self._entropies: deque[float] = deque(maxlen=ENTROPIES)
        self._cuts: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        """`table-bandit`."""
        return "table-bandit"

    @property
    def wants(self) -> frozenset[Signal]:
        """The target's entropy."""
        return frozenset({Signal.TARGET_LAW})

    def cell(self, context: RoundContext) -> tuple[int, int]:
        """Bucket of the batch size, and third of the entropy."""
        entropy = context.target_entropy
        third = 1 if entropy is None or not self._cuts else bisect_right(self._cuts, entropy)
        return context.batch_size.bit_length(), third

    def horizon_for(self, context: RoundContext) -> int:
        """The best arm of the cell within the limit."""
        arms = playable(self.arms, context.limit)
        known = self._cells.get(self.cell(context))
        return arms[0] if known is None else known.best(arms)

    def observe(self, feedback: RoundFeedback) -> None:
        """Pay the arm in its cell; then the entropy counts for later terciles."""
        reward = self._reward.observe(feedback)
        if feedback.drafted == feedback.counted and feedback.drafted in self.arms:
            cell = self.cell(feedback.context)
            if cell not in self._cells:
                self._cells[cell] = ArmStatistics(weight=self.weight, discount=1.0, forced_rounds=1)
            self._cells[cell].pay(feedback.drafted, reward)
        if feedback.context.target_entropy is not None:
            self._entropies.append(feedback.context.target_entropy)
            if len(self._entropies) >= 3:
                ranked = sorted(self._entropies)
                self._cuts = ranked[len(ranked) // 3], ranked[2 * len(ranked) // 3]

    def clone(self) -> TableBandit:
        """Without plays."""
        return TableBandit(costs=self.costs, arms=self.arms, weight=self.weight)
