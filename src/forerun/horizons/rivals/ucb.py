"""Upper-confidence bandits over horizons: UCB1, its discounted form, and BanditSpec's."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from math import inf, log, sqrt
from typing import Generic, TypeVar, final

from forerun.errors import ForerunError
from forerun.horizons.context import RoundContext, RoundFeedback
from forerun.horizons.cost_model import CostModel
from forerun.horizons.rivals.deterministic import DeterministicPolicy
from forerun.horizons.rivals.reward import RoundReward, playable

Arm = TypeVar("Arm", bound=Hashable)


@final
class ArmStatistics(Generic[Arm]):
    """Discounted counts and mean rewards of arms, and the index mean + sqrt(weight ln n / n_arm).

    Args:
        weight: of the bonus.
        discount: multiplies all old counts in every round.
        forced_rounds: plays of each arm, in order, before indices count.
        shared_count: put the number of all plays into every arm's bonus: the released BanditSpec code does, which gives
            all arms the same bonus and makes the choice greedy.
    """

    def __init__(self, *, weight: float, discount: float, forced_rounds: int, shared_count: bool = False) -> None:
        self.weight = weight
        self.discount = discount
        self.forced_rounds = forced_rounds
        self.shared_count = shared_count
        self._plays: dict[Arm, int] = {}
        self._counts: dict[Arm, float] = {}
        self._sums: dict[Arm, float] = {}

    def best(self, arms: Iterable[Arm]) -> Arm:
        """The first arm with forced plays left, else the first with the largest index."""
        arms = list(arms)
        for arm in arms:
            if self._plays.get(arm, 0) < self.forced_rounds:
                return arm
        return max(arms, key=self._index)

    def pay(self, arm: Arm, reward: float) -> None:
        """Take in one play."""
        if self.discount < 1.0:
            for known in self._counts:
                self._counts[known] *= self.discount
                self._sums[known] *= self.discount
        self._plays[arm] = self._plays.get(arm, 0) + 1
        self._counts[arm] = self._counts.get(arm, 0.0) + 1.0
        self._sums[arm] = self._sums.get(arm, 0.0) + reward

    def _index(self, arm: Arm) -> float:
        count = self._counts.get(arm, 0.0)
        if count == 0.0:
            return inf
        total = sum(self._counts.values())
        bonus = self.weight * max(0.0, log(total)) / (total if self.shared_count else count)
        return self._sums[arm] / count + sqrt(bonus)


@final
class UpperConfidence(DeterministicPolicy):
    """A bandit whose arms are horizons and whose reward is the round's tokens per second, scaled to [0, 1].

    An arm is paid only by rounds that drafted exactly its horizon: what a limit or an end cut short belongs to none.

    Args:
        costs: scales the reward; None scales by the best rate seen.
        arms: horizons.
        weight: bonus sqrt(weight ln n / n_arm); 2 is UCB1.
        discount: below 1 old rounds fade, and the bandit follows changes.
        forced_rounds: plays of each arm at first.
        shared_count: see ``ArmStatistics``; only to show what the released bug does.
        name: for records.

    Raises:
        ForerunError: no arms, a negative one, a negative weight, or a discount outside (0, 1].

    References:
        UCB1; discounted UCB with discount 0.99.
    """

    def __init__(
        self,
        *,
        costs: CostModel | None = None,
        arms: tuple[int, ...] = tuple(range(9)),
        weight: float = 2.0,
        discount: float = 1.0,
        forced_rounds: int = 1,
        shared_count: bool = False,
        name: str = "ucb1",
    ) -> None:
        if not arms or min(arms) < 0 or weight < 0.0 or not 0.0 < discount <= 1.0:
            raise ForerunError(
                "a bandit needs arms (horizons of 0 or more), weight >= 0 and 0 < discount <= 1, got "
                f"{arms}, {weight} and {discount}"
            )
        self.costs = costs
        self.arms = arms
        self._arms = ArmStatistics[int](
            weight=weight, discount=discount, forced_rounds=forced_rounds, shared_count=shared_count
        )
        self._reward = RoundReward(costs)
        self._name = name

    @property
    def name(self) -> str:
        """As given."""
        return self._name

    def horizon_for(self, context: RoundContext) -> int:
        """The best arm within the limit."""
        return self._arms.best(playable(self.arms, context.limit))

    def observe(self, feedback: RoundFeedback) -> None:
        """Pay the arm that was played."""
        reward = self._reward.observe(feedback)
        if feedback.drafted == feedback.counted and feedback.drafted in self.arms:
            self._arms.pay(feedback.drafted, reward)

    def clone(self) -> UpperConfidence:
        """Without plays."""
        return UpperConfidence(
            costs=self.costs,
            arms=self.arms,
            weight=self._arms.weight,
            discount=self._arms.discount,
            forced_rounds=self._arms.forced_rounds,
            shared_count=self._arms.shared_count,
            name=self._name,
        )


def bandit_spec(*, costs: CostModel | None = None, as_released: bool = False) -> UpperConfidence:
    """BanditSpec's UCBSpec: horizons 1 to 4, seven forced plays each, weight 6, counts per arm.

    Args:
        costs: see ``UpperConfidence``.
        as_released: with the released code's bonus, which divides by the number of all plays.

    References:
        arXiv 2505.15141 and the released code; its reward is the measured rate, ours is scaled, hence "style".
    """
    name = "banditspec-released" if as_released else "banditspec-style"
    return UpperConfidence(
        costs=costs, arms=(1, 2, 3, 4), weight=6.0, forced_rounds=7, shared_count=as_released, name=name
    )
