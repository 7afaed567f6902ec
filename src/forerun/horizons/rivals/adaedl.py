"""AdaEDL: a lower bound on acceptance from the draft's entropy, against a threshold that follows acceptance."""

from __future__ import annotations

from typing import final

from forerun.errors import ForerunError
from forerun.horizons.context import RoundContext, RoundFeedback
from forerun.horizons.rivals.deterministic import DeterministicPolicy
from forerun.horizons.rivals.stop_rules import AcceptanceBound


@final
class AdaEDL(DeterministicPolicy):
    """Stop before a draw with 1 - sqrt(gamma H) < lambda.

    The paper's update of lambda is not recovered; this one is Draft & Verify's: the running accept rate m (rate
    `rate_memory`) below `target_rate` moves the goal to lambda + step, above it to lambda - step unless the cap was
    reached; lambda follows its goal with rate 1 - `threshold_memory`, within [0, 1].

    Args:
        gamma: of the bound.
        threshold: first lambda.
        cap: most tokens.
        target_rate: accept rate to hold.
        step: of lambda.
        rate_memory: weight of the old accept rate.
        threshold_memory: weight of the old lambda.

    Raises:
        ForerunError: gamma not above 0, the cap below 1, or a rate or memory outside [0, 1].

    References:
        arXiv 2410.18351; for the update the released code of Draft & Verify (matchness 0.5, 0.9, 0.01, 0.9).
    """

    def __init__(
        self,
        *,
        gamma: float = 0.2,
        threshold: float = 0.4,
        cap: int = 16,
        target_rate: float = 0.9,
        step: float = 0.01,
        rate_memory: float = 0.5,
        threshold_memory: float = 0.9,
    ) -> None:
        if not gamma > 0.0 or cap < 1 or not all(0.0 <= x <= 1.0 for x in (target_rate, rate_memory, threshold_memory)):
            raise ForerunError(
                "AdaEDL needs gamma > 0, cap >= 1 and rates and memories in [0, 1], got "
                f"{gamma}, {cap}, {target_rate}, {rate_memory} and {threshold_memory}"
            )
        self.gamma = gamma
        self.threshold = threshold
        self.cap = cap
        self.target_rate = target_rate
        self.step = step
        self.rate_memory = rate_memory
        self.threshold_memory = threshold_memory
        self._threshold = threshold
        self._rate: float | None = None

    @property
    def name(self) -> str:
        """`adaedl-style`."""
        return "adaedl-style"

    def horizon_for(self, context: RoundContext) -> int:
        """The cap."""
        return self.cap

    ends_drafts = True

    def stop_for(self, context: RoundContext) -> AcceptanceBound:
        """With lambda as it stands."""
        return AcceptanceBound(self.gamma, self._threshold)

    def observe(self, feedback: RoundFeedback) -> None:
        """A round cut by the answer's end counts as far as it was judged."""
        if feedback.counted == 0:
            return
        rate = min(feedback.accepted, feedback.counted) / feedback.counted
        self._rate = rate if self._rate is None else self._rate + (1.0 - self.rate_memory) * (rate - self._rate)
        goal = self._threshold
        if self._rate < self.target_rate:
            goal += self.step
        elif feedback.drafted < self.cap:
            goal -= self.step
        moved = self._threshold + (1.0 - self.threshold_memory) * (goal - self._threshold)
        self._threshold = min(max(moved, 0.0), 1.0)  # beyond, it would only take longer to come back

    def clone(self) -> AdaEDL:
        """With the first lambda."""
        return AdaEDL(
            gamma=self.gamma,
            threshold=self.threshold,
            cap=self.cap,
            target_rate=self.target_rate,
            step=self.step,
            rate_memory=self.rate_memory,
            threshold_memory=self.threshold_memory,
        )
