"""TapOut: a bandit whose arms are stop rules instead of horizons."""

from __future__ import annotations

from typing import final

from forerun.errors import ForerunError
from forerun.horizons.context import RoundContext, RoundFeedback
from forerun.horizons.rivals.deterministic import DeterministicPolicy
from forerun.horizons.rivals.stop_rules import AcceptanceBound, EntropyBound, EntropyRise, Margin, TopProbability
from forerun.horizons.rivals.ucb import ArmStatistics
from forerun.horizons.stop import StopRule

ARMS: tuple[StopRule, ...] = (
    TopProbability(0.6),
    EntropyBound(0.15, 0.3),
    AcceptanceBound(0.2, 0.4),
    EntropyRise(0.5),
    Margin(0.2),
)
"""Max-confidence, SVIP, AdaEDL, entropy difference, margin; the last two thresholds are ours."""


@final
class TapOut(DeterministicPolicy):
    """UCB1 over stop rules, one choice a round; reward = weight * A / cap + (1 - weight) * A / drafted.

    Args:
        arms: stop rules, all exact.
        cap: most tokens.
        weight: of the accepted length against the accept rate; the original mix is not recovered, hence "style".

    Raises:
        ForerunError: no arms, one that is not exact, a cap below 1, or a weight outside [0, 1].

    References:
        arXiv 2511.02017.
    """

    def __init__(self, *, arms: tuple[StopRule, ...] = ARMS, cap: int = 8, weight: float = 0.5) -> None:
        if not arms or not all(arm.exact for arm in arms) or cap < 1 or not 0.0 <= weight <= 1.0:
            raise ForerunError(f"TapOut needs exact arms, cap >= 1 and a weight in [0, 1], got {arms}, {cap}, {weight}")
        self.arms = arms
        self.cap = cap
        self.weight = weight
        self._arms = ArmStatistics[StopRule](weight=2.0, discount=1.0, forced_rounds=1)

    @property
    def name(self) -> str:
        """`tapout-style`."""
        return "tapout-style"

    def horizon_for(self, context: RoundContext) -> int:
        """The cap."""
        return self.cap

    ends_drafts = True

    def stop_for(self, context: RoundContext) -> StopRule:
        """The best arm."""
        return self._arms.best(self.arms)

    def observe(self, feedback: RoundFeedback) -> None:
        """Pay the arm; rounds without drafts or cut by the answer's end say nothing about it."""
        arm = feedback.choice.stop
        if arm is None or feedback.drafted == 0 or feedback.counted < feedback.drafted:
            return
        accepted = feedback.accepted
        self._arms.pay(arm, self.weight * accepted / self.cap + (1.0 - self.weight) * accepted / feedback.drafted)

    def clone(self) -> TapOut:
        """Without plays."""
        return TapOut(arms=self.arms, cap=self.cap, weight=self.weight)
