"""A running mean of the accepted count that knows that a full round hides how far drafts would have got."""

from __future__ import annotations

from typing import final

from forerun.errors import ForerunError
from forerun.horizons.context import RoundContext, RoundFeedback
from forerun.horizons.rivals.deterministic import DeterministicPolicy, all_accepted


@final
class CensoredEMA(DeterministicPolicy):
    """k = max(1, round(m)); a rejection after A drafts moves m by alpha (A - m), a full round by `probe`.

    Args:
        alpha: rate of the running mean.
        probe: added after a full round, whose accepted count is censored.
        start: first value of m.
        ceiling: largest m, so that a long run of full rounds is not remembered for ever.

    Raises:
        ForerunError: alpha outside (0, 1], or a probe, start or ceiling that is not above 0.

    References:
        llama.cpp fork, pull request 8 (Nathanw1014): alpha 0.25, +1.0, start 2.0. Stands in for GammaTune too, whose
        formula is not recovered.
    """

    def __init__(self, *, alpha: float = 0.25, probe: float = 1.0, start: float = 2.0, ceiling: float = 16.0) -> None:
        if not (0.0 < alpha <= 1.0 and probe > 0.0 and 0.0 < start <= ceiling):
            raise ForerunError(
                "a censored mean needs 0 < alpha <= 1, probe > 0 and 0 < start <= ceiling, got "
                f"{alpha}, {probe}, {start} and {ceiling}"
            )
        self.alpha = alpha
        self.probe = probe
        self.start = start
        self.ceiling = ceiling
        self._mean = start

    @property
    def name(self) -> str:
        """`censored-ema`."""
        return "censored-ema"

    def horizon_for(self, context: RoundContext) -> int:
        """The mean, rounded half up."""
        return max(1, int(self._mean + 0.5))

    def observe(self, feedback: RoundFeedback) -> None:
        """Rounds cut for another reason than a rejection change nothing."""
        if all_accepted(feedback, self.horizon_for(feedback.context)):
            self._mean = min(self.ceiling, self._mean + self.probe)
        elif feedback.rejected_at is not None:
            self._mean += self.alpha * (feedback.accepted - self._mean)

    def clone(self) -> CensoredEMA:
        """At the start."""
        return CensoredEMA(alpha=self.alpha, probe=self.probe, start=self.start, ceiling=self.ceiling)
