"""EXP3 over horizons, as published and with what a rejection says about the arms that were not played."""

from __future__ import annotations

from math import exp, log, sqrt
from typing import final

from forerun.errors import ForerunError
from forerun.horizons.context import Choice, RoundContext, RoundFeedback
from forerun.horizons.cost_model import CostModel
from forerun.horizons.policy import HorizonPolicy
from forerun.horizons.rivals.deterministic import check_uniform
from forerun.horizons.rivals.reward import RoundReward, playable
from forerun.horizons.signals import Signal


@final
class EXP3(HorizonPolicy):
    """Plays arm a with (1 - mix) w_a / sum of w + mix / K, and w_a = exp(eta * sum of estimated rewards).

    Estimates: reward / P(a played) for the arm played. With side information: a rejection behind A drafts tells what
    every arm would have been paid, and a full round what the arms up to the one played would have; so each arm's reward
    is divided by the probability of a round that tells it. A round without rejection tells arm a if it is at least a.

    eta = sqrt(ln K / (K T)), mix = min(0.1, sqrt(K ln K / T)).

    Args:
        costs: scales rewards, and prices the arms that were not played; None measures as it goes.
        arms: horizons.
        rounds: T, for which eta and mix are tuned.
        side_information: see above.

    Raises:
        ForerunError: fewer than two arms, a negative one, or no rounds.

    References:
        Auer et al., EXP3; EXP3Spec of BanditSpec, arXiv 2505.15141. The side information is derived here.
    """

    def __init__(
        self,
        *,
        costs: CostModel | None = None,
        arms: tuple[int, ...] = tuple(range(9)),
        rounds: int = 10_000,
        side_information: bool = False,
    ) -> None:
        if len(arms) < 2 or min(arms) < 0 or rounds < 1:
            raise ForerunError(f"EXP3 needs two arms of 0 or more and at least one round, got {arms} and {rounds}")
        self.costs = costs
        self.arms = arms
        self.rounds = rounds
        self.side_information = side_information
        count = len(arms)
        self._rate = sqrt(log(count) / (count * rounds))
        self._mix = min(0.1, sqrt(count * log(count) / rounds))
        self._reward = RoundReward(costs)
        self._totals = dict.fromkeys(arms, 0.0)

    @property
    def name(self) -> str:
        """`exp3` or `exp3-side-information`."""
        return "exp3-side-information" if self.side_information else "exp3"

    @property
    def wants(self) -> frozenset[Signal]:
        """Nothing."""
        return frozenset()

    @property
    def totals(self) -> dict[int, float]:
        """Estimated sums of the rewards that each arm would have been paid so far."""
        return dict(self._totals)

    def propose(self, context: RoundContext, *, uniform: float) -> Choice:
        """The coin draws the arm; `planned` is the likeliest one."""
        check_uniform(uniform)
        law = self._law(context.limit)
        reached, horizon = 0.0, max(law)
        for arm, prob in law.items():
            reached += prob
            if uniform < reached:
                horizon = arm
                break
        planned = max(law, key=lambda arm: law[arm])
        return Choice(
            horizon=horizon,
            planned=planned,
            explored=horizon != planned,
            propensities=tuple(
                sum(prob for arm, prob in law.items() if arm >= place) for place in range(1, context.limit + 1)
            ),
        )

    def observe(self, feedback: RoundFeedback) -> None:
        """Rounds that a limit or an end cut short teach costs only.

        Probabilities are those of the choice, so rounds may overlap.
        """
        reward = self._reward.observe(feedback)
        played, accepted = feedback.drafted, feedback.accepted
        if played not in self._totals or feedback.counted < played:
            return
        reached = (1.0, *feedback.choice.propensities, 0.0)  # entry j: P(at least j tokens are drafted)
        if not self.side_information:
            self._totals[played] += reward / (reached[played] - reached[played + 1])
            return
        furthest = feedback.context.limit if accepted < played else played
        told = [arm for arm in self.arms if arm <= furthest]
        for arm, value in self._reward.counterfactual(feedback.context, told, accepted).items():
            # told by rounds as long as the arm itself, and by all that meet the rejection
            self._totals[arm] += value / reached[min(arm, accepted + 1)]

    def clone(self) -> EXP3:
        """With equal weights."""
        return EXP3(costs=self.costs, arms=self.arms, rounds=self.rounds, side_information=self.side_information)

    def _law(self, limit: int) -> dict[int, float]:
        arms = playable(self.arms, limit)
        totals = [self._totals.get(arm, 0.0) for arm in arms]
        top = max(totals)
        weights = [exp(self._rate * (total - top)) for total in totals]
        scale = (1.0 - self._mix) / sum(weights)
        return {arm: scale * weight + self._mix / len(arms) for arm, weight in sorted(zip(arms, weights, strict=True))}
