"""LinUCB: a linear reward model for each horizon over a handful of features known before drafting."""

from __future__ import annotations

from math import sqrt
from typing import final

import numpy as np

from forerun.errors import ForerunError
from forerun.horizons.context import RoundContext, RoundFeedback
from forerun.horizons.cost_model import CostModel
from forerun.horizons.rivals.deterministic import DeterministicPolicy
from forerun.horizons.rivals.reward import RoundReward, playable
from forerun.horizons.signals import Signal

NUM_FEATURES = 5
ACCEPTED_RATE = 0.25


@final
class LinUCB(DeterministicPolicy):
    """Plays the arm with the largest theta_a . x + alpha sqrt(x . A_a^-1 x); theta_a = A_a^-1 b_a, A_a = ridge I + xx'.

    Features x: 1, running mean of the accepted count over 8, target entropy in nats, target margin, place of the last
    rejection over 8 (what is unknown is 0). Reward: tokens per second, scaled to [0, 1].

    Args:
        costs: scales the reward; None scales by the best rate seen.
        arms: horizons.
        alpha: width of the confidence interval.
        ridge: of every arm.

    Raises:
        ForerunError: no arms, a negative one, a negative alpha, or a ridge that is not above 0.

    References:
        Li et al., LinUCB with disjoint models; alpha 1, ridge 1.
    """

    def __init__(
        self,
        *,
        costs: CostModel | None = None,
        arms: tuple[int, ...] = tuple(range(9)),
        alpha: float = 1.0,
        ridge: float = 1.0,
    ) -> None:
        if not arms or min(arms) < 0 or alpha < 0.0 or not ridge > 0.0:
            raise ForerunError(
                f"LinUCB needs arms of 0 or more, alpha >= 0 and ridge > 0, got {arms}, {alpha} and {ridge}"
            )
        self.costs = costs
        self.arms = arms
        self.alpha = alpha
        self.ridge = ridge
        self._reward = RoundReward(costs)
        self._inverses = {arm: np.eye(NUM_FEATURES) / ridge for arm in arms}
        self._sums = {arm: np.zeros(NUM_FEATURES) for arm in arms}
        self._accepted = 0.0
        self._last_reject = 0

    @property
    def name(self) -> str:
        """`linucb`."""
        return "linucb"

    @property
    def wants(self) -> frozenset[Signal]:
        """The target's entropy and margin."""
        return frozenset({Signal.TARGET_LAW})

    def horizon_for(self, context: RoundContext) -> int:
        """The arm with the largest upper bound; the smallest of equals."""
        features = self._features(context)
        best, largest = context.limit, float("-inf")
        for arm in playable(self.arms, context.limit):
            if arm not in self._inverses:  # the limit lies below every arm
                break
            scaled = self._inverses[arm] @ features
            bound = float(scaled @ self._sums[arm]) + self.alpha * sqrt(float(scaled @ features))
            if bound > largest:
                best, largest = arm, bound
        return best

    def observe(self, feedback: RoundFeedback) -> None:
        """Pay the arm that was played, with the features as they were."""
        features = self._features(feedback.context)
        reward = self._reward.observe(feedback)
        if feedback.drafted == feedback.counted and feedback.drafted in self._inverses:
            inverse = self._inverses[feedback.drafted]
            scaled = inverse @ features
            inverse -= np.outer(scaled, scaled) / (1.0 + float(scaled @ features))  # Sherman-Morrison
            self._sums[feedback.drafted] += reward * features
        if feedback.counted:
            self._accepted += ACCEPTED_RATE * (feedback.accepted - self._accepted)
        self._last_reject = feedback.rejected_at or self._last_reject

    def clone(self) -> LinUCB:
        """Without plays."""
        return LinUCB(costs=self.costs, arms=self.arms, alpha=self.alpha, ridge=self.ridge)

    def _features(self, context: RoundContext) -> np.ndarray:
        entropy, margin = context.target_entropy, context.target_margin
        return np.array(
            [
                1.0,
                self._accepted / 8.0,
                0.0 if entropy is None else entropy,
                0.0 if margin is None else margin,
                self._last_reject / 8.0,
            ]
        )
