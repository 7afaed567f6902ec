"""Three horizons, chosen by how uncertain the target has been lately."""

from __future__ import annotations

from typing import final

from forerun.errors import ForerunError
from forerun.horizons.context import RoundContext, RoundFeedback
from forerun.horizons.rivals.deterministic import DeterministicPolicy
from forerun.horizons.signals import Signal


@final
class EntropySwitch(DeterministicPolicy):
    """K below the first cut-point of the running target entropy, K // 2 between the two, 1 above the second.

    Args:
        largest: K.
        alpha: rate of the running mean, the entropy behind the last committed token included.
        cuts: nats; meant to be the terciles of training data. The defaults are ours: most positions of a chat model lie
            below 1 nat.

    Raises:
        ForerunError: a largest horizon below 1, alpha outside (0, 1], or cut-points that do not rise.

    References:
        EntMTP, arXiv 2606.27550 (trees from running entropy; its thresholds are not recovered, hence "style"); the
        entropy gate asked for in vLLM issue 54082 with rate 0.35.
    """

    def __init__(self, *, largest: int = 8, alpha: float = 0.35, cuts: tuple[float, float] = (0.2, 1.0)) -> None:
        if largest < 1 or not 0.0 < alpha <= 1.0 or not cuts[0] <= cuts[1]:
            raise ForerunError(
                "an entropy switch needs largest >= 1, 0 < alpha <= 1 and rising cuts, got "
                f"{largest}, {alpha} and {cuts}"
            )
        self.largest = largest
        self.alpha = alpha
        self.cuts = cuts
        self._mean: float | None = None

    @property
    def name(self) -> str:
        """`entropy-switch-style`."""
        return "entropy-switch-style"

    @property
    def wants(self) -> frozenset[Signal]:
        """The target's entropy."""
        return frozenset({Signal.TARGET_LAW})

    def horizon_for(self, context: RoundContext) -> int:
        """By the mean with this context's entropy; K // 2 where no entropy is known yet."""
        mean = self._moved(context)
        if mean is None or self.cuts[0] < mean <= self.cuts[1]:
            return max(1, self.largest // 2)
        return self.largest if mean <= self.cuts[0] else 1

    def observe(self, feedback: RoundFeedback) -> None:
        """Only the context counts."""
        self._mean = self._moved(feedback.context)

    def clone(self) -> EntropySwitch:
        """Without a mean."""
        return EntropySwitch(largest=self.largest, alpha=self.alpha, cuts=self.cuts)

    def _moved(self, context: RoundContext) -> float | None:
        entropy = context.target_entropy
        if self._mean is None or entropy is None:
            return self._mean if entropy is None else entropy
        return self._mean + self.alpha * (entropy - self._mean)
