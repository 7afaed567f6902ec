"""transformers' dynamic speculation: stop behind an unlikely token, with a threshold re-fitted from past rounds."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import final

from forerun.errors import ForerunError
from forerun.horizons.context import RoundContext, RoundFeedback
from forerun.horizons.rivals.deterministic import DeterministicPolicy
from forerun.horizons.rivals.stop_rules import TokenProbability

MOST_SAMPLES_BEFORE_FIT = 5
MISS_WEIGHT = 3.0


@final
class DynamicConfidence(DeterministicPolicy):
    """Threshold on the last token's own draft probability; the token is kept.

    After each round the verified tokens (accepted: 1; the first rejected: 0) join the sample, and the threshold becomes
    the sample's probability with the smallest FPR + 3 FNR, once there are more than 5 and both kinds. Departure: the
    sample holds the last `window` tokens, so that a round's work does not grow.

    Args:
        threshold: first threshold.
        cap: most tokens.
        refit: whether the threshold moves (in transformers it does only where scikit-learn is installed).
        window: tokens in the sample.

    Raises:
        ForerunError: a threshold outside [0, 1], or a cap or window below 1.

    References:
        transformers, generation/candidate_generator.py, `assistant_confidence_threshold`; unsupervised DISCO.
    """

    def __init__(self, *, threshold: float = 0.4, cap: int = 20, refit: bool = True, window: int = 1024) -> None:
        if not 0.0 <= threshold <= 1.0 or cap < 1 or window < 1:
            raise ForerunError(
                f"dynamic confidence needs a threshold in [0, 1], a cap and a window, got {threshold}, {cap}, {window}"
            )
        self.threshold = threshold
        self.cap = cap
        self.refit = refit
        self.window = window
        self._threshold = threshold
        self._sample: deque[tuple[float, bool]] = deque(maxlen=window)

    @property
    def name(self) -> str:
        """`transformers-confidence`, or with `-constant` where nothing is re-fitted."""
        return "transformers-confidence" if self.refit else "transformers-confidence-constant"

    @property
    def current_threshold(self) -> float:
        """As the next round will use it."""
        return self._threshold

    def horizon_for(self, context: RoundContext) -> int:
        """The cap."""
        return self.cap

    ends_drafts = True

    def stop_for(self, context: RoundContext) -> TokenProbability:
        """With the threshold as it stands."""
        return TokenProbability(self._threshold)

    def observe(self, feedback: RoundFeedback) -> None:
        """Tokens behind the first rejection were not judged."""
        if not self.refit:
            return
        judged = min(feedback.accepted + 1, feedback.counted)
        for place, token in enumerate(feedback.drawn[:judged]):
            self._sample.append((token.prob, place < feedback.accepted))
        if len(self._sample) > MOST_SAMPLES_BEFORE_FIT and len({stood for _, stood in self._sample}) == 2:
            self._threshold = best_threshold(self._sample)

    def clone(self) -> DynamicConfidence:
        """With the first threshold."""
        return DynamicConfidence(threshold=self.threshold, cap=self.cap, refit=self.refit, window=self.window)


def best_threshold(sample: Iterable[tuple[float, bool]]) -> float:
    """The probability t, among those in the sample, with the smallest FPR + 3 FNR of "stands if at least t".

    FPR is the share of rejected tokens at or above t, FNR that of accepted tokens below it. Of equals the largest t.

    Args:
        sample: a token's draft probability and whether it stood; both kinds must occur.

    Example:
        >>> best_threshold([(0.9, True), (0.8, True), (0.7, False), (0.6, True), (0.2, False)])
        0.6
    """
    ordered = sorted(sample, reverse=True)
    accepted = sum(stood for _, stood in ordered)
    rejected = len(ordered) - accepted
    best, smallest = 1.0, float("inf")
    hits = 0
    for index, (prob, stood) in enumerate(ordered):
        hits += stood
        if index + 1 < len(ordered) and ordered[index + 1][0] == prob:
            continue
        cost = (index + 1 - hits) / rejected + MISS_WEIGHT * (1.0 - hits / accepted)
        if cost < smallest:
            best, smallest = prob, cost
    return best
