"""The pre-draft features of AMTP: numbers known before the first token of a round is drafted.

Every feature has a fixed scale that brings its usual range to about [-1, 1]; an unknown value is 0, the middle. Fixed
scales, not running ones: a coefficient keeps its meaning for life, states stay small, and the same inputs give the same
horizon on every machine.

| feature | scale | level |
|---|---|---|
| accept rate, alpha 0.3 and 0.03 | 2 rate - 1 | F1 |
| position of the last rejection r (drafted + 1 where none) | log2(r) / 2 - 1 | F1 |
| last round ended in a correction | +1 or -1 | F1 |
| context length n | (log2(1 + n) - 10) / 5 | F1 |
| generated tokens n | (log2(1 + n) - 5) / 5 | F1 |
| temperature t | min(t, 2) - 1 | F1 |
| target entropy H, nats | 1 - 2 exp(-H) | F2 |
| target top probability | 2 x - 1 | F2 |
| target top-2 margin | 2 x - 1 | F2 |
| last token repeats | 1 or 0 | F2 |

The depth is no feature: each position has its own bias in the hazard model (level F0 is that bias alone).
"""

from __future__ import annotations

from enum import Enum
from math import exp, log2

from forerun.horizons.context import RoundContext
from forerun.horizons.history import AcceptanceHistory


class FeatureLevel(Enum):
    """How much the hazards may look at; each level contains the one before."""

    F0 = "F0"
    """A bias per depth, nothing else."""
    F1 = "F1"
    """Past acceptance, lengths and temperature."""
    F2 = "F2"
    """Also the target law behind the last committed token."""


HISTORY_NAMES = (
    "accept_rate_fast",
    "accept_rate_slow",
    "last_reject",
    "corrected",
    "context_length",
    "generated",
    "temperature",
)
TARGET_NAMES = ("target_entropy", "target_top_prob", "target_margin", "last_token_repeats")

FEATURE_NAMES: dict[FeatureLevel, tuple[str, ...]] = {
    FeatureLevel.F0: (),
    FeatureLevel.F1: HISTORY_NAMES,
    FeatureLevel.F2: HISTORY_NAMES + TARGET_NAMES,
}


def scaled_features(context: RoundContext, history: AcceptanceHistory, level: FeatureLevel) -> tuple[float, ...]:
    """The scaled features of a round, in the order of `FEATURE_NAMES[level]`."""
    if level is FeatureLevel.F0:
        return ()
    fast, slow, last_reject, corrected = history.fast, history.slow, history.last_reject, history.corrected
    past = (
        0.0 if fast is None else 2.0 * fast - 1.0,
        0.0 if slow is None else 2.0 * slow - 1.0,
        0.0 if last_reject is None else log2(last_reject) / 2.0 - 1.0,
        0.0 if corrected is None else (1.0 if corrected else -1.0),
        (log2(1 + context.context_length) - 10.0) / 5.0,
        (log2(1 + context.generated) - 5.0) / 5.0,
        (context.temperature if context.temperature < 2.0 else 2.0) - 1.0,
    )
    if level is FeatureLevel.F1:
        return past
    entropy, top_prob, margin = context.target_entropy, context.target_top_prob, context.target_margin
    return (
        *past,
        0.0 if entropy is None else 1.0 - 2.0 * exp(-entropy),
        0.0 if top_prob is None else 2.0 * top_prob - 1.0,
        0.0 if margin is None else 2.0 * margin - 1.0,
        1.0 if context.last_token_repeats else 0.0,
    )
