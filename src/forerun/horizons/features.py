"""The features of AMTP: numbers known before the first token of a round is drafted, or at least sampled.

Every feature has a fixed scale that brings its usual range to about [-1, 1]; an unknown value is 0, the middle. Fixed
scales, not running ones: a coefficient keeps its meaning for life, states stay small, and the same inputs give the same
horizon on every machine.

| feature | scale | level |
|---|---|---|
| accept rate, alpha 0.3 and 0.03 | 2 rate - 1 | F1 |
| position of the last rejection r (drafted + 1 where none) | log2(r) / 2 - 1 | F1 |
| last round ended in a correction | +1 or -1 | F1 |
| informative rounds n since a rejection | log2(1 + n) / 2 - 1 | F1 |
| mean mismatch of the last round's drafts | 2 x - 1 | F1 |
| how much that moves from round to round | 2 x - 1, at most 1 | F1 |
| context length n | (log2(1 + n) - 10) / 5 | F1 |
| generated tokens n | (log2(1 + n) - 5) / 5 | F1 |
| temperature t | min(t, 2) - 1 | F1 |
| target entropy H, nats | 1 - 2 exp(-H) | F2 |
| target top probability | 2 x - 1 | F2 |
| target top-2 margin | 2 x - 1 | F2 |
| last token repeats | 1 or 0 | F2 |
| class of the last token, one number for each | 1 or 0 | F2 |
| suffix match of m tokens | log2(1 + m) / 2 - 1 | F2 |
| projected hidden state, 32 numbers | x / 2 | F3 |
| draft margin m of each position, in log-probability | 1 - 2 exp(-m) | F4 |

The depth is no feature: each position has its own bias in the hazard model (level F0 is that bias alone). Load and
batch size are none either: they belong to the costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from math import exp, log2

from forerun.horizons.context import RoundContext
from forerun.horizons.history import AcceptanceHistory
from forerun.horizons.signals import Signal, TokenClass

HIDDEN_DIMS = 32
"""Numbers of a projected hidden state."""


class FeatureLevel(Enum):
    """How much the hazards may look at; each level contains the one before."""

    F0 = "F0"
    """A bias per depth, nothing else."""
    F1 = "F1"
    """Past acceptance, lengths and temperature."""
    F2 = "F2"
    """Also the target law behind the last committed token, that token's class, and repetition."""
    F3 = "F3"
    """Also the target's hidden state there, projected."""
    F4 = "F4"
    """Also the margins of the draft laws: only for drafters that know these before they sample, and the block is paid
    for at every horizon, so it saves verification only."""


HISTORY_NAMES = (
    "accept_rate_fast",
    "accept_rate_slow",
    "last_reject",
    "corrected",
    "quiet_rounds",
    "mismatch",
    "mismatch_swing",
    "context_length",
    "generated",
    "temperature",
)
TARGET_NAMES = (
    "target_entropy",
    "target_top_prob",
    "target_margin",
    "last_token_repeats",
    "suffix_match",
    *(f"token_is_{kind.value}" for kind in TokenClass),
)
HIDDEN_NAMES = tuple(f"hidden_{index}" for index in range(HIDDEN_DIMS))

FEATURE_NAMES: dict[FeatureLevel, tuple[str, ...]] = {
    FeatureLevel.F0: (),
    FeatureLevel.F1: HISTORY_NAMES,
    FeatureLevel.F2: HISTORY_NAMES + TARGET_NAMES,
    FeatureLevel.F3: HISTORY_NAMES + TARGET_NAMES + HIDDEN_NAMES,
    FeatureLevel.F4: (*HISTORY_NAMES, *TARGET_NAMES, *HIDDEN_NAMES, "draft_margin"),
}
"""The last name of F4 stands for one number at each position; all others are shared by the positions."""

SIGNALS: dict[FeatureLevel, frozenset[Signal]] = {
    FeatureLevel.F0: frozenset(),
    FeatureLevel.F1: frozenset(),
    FeatureLevel.F2: frozenset({Signal.TARGET_LAW, Signal.TOKEN_CLASS, Signal.SUFFIX_MATCH}),
    FeatureLevel.F3: frozenset(set(Signal) - {Signal.DRAFT_MARGINS}),
    FeatureLevel.F4: frozenset(Signal),
}
"""What engines must look at for each level."""

_NO_CLASS = (0.0,) * len(TokenClass)
_CLASSES = {kind: tuple(float(kind is other) for other in TokenClass) for kind in TokenClass}
_NO_HIDDEN = (0.0,) * HIDDEN_DIMS


def num_shared(level: FeatureLevel) -> int:
    """Features that all positions share."""
    return len(FEATURE_NAMES[level]) - (level is FeatureLevel.F4)


def scaled_features(context: RoundContext, history: AcceptanceHistory, level: FeatureLevel) -> tuple[float, ...]:
    """The scaled features of a round, in the order of `FEATURE_NAMES[level]`."""
    if level is FeatureLevel.F0:
        return ()
    rejected, corrected = history.last_reject, history.corrected
    mismatch, swing = history.mismatch, history.mismatch_swing
    past = (
        0.0 if history.fast is None else 2.0 * history.fast - 1.0,
        0.0 if history.slow is None else 2.0 * history.slow - 1.0,
        0.0 if rejected is None else log2(rejected) / 2.0 - 1.0,
        0.0 if corrected is None else (1.0 if corrected else -1.0),
        log2(1 + history.quiet_rounds) / 2.0 - 1.0 if history.rounds else 0.0,
        0.0 if mismatch is None else 2.0 * mismatch - 1.0,
        0.0 if swing is None else 2.0 * swing - 1.0,
        (log2(1 + context.context_length) - 10.0) / 5.0,
        (log2(1 + context.generated) - 5.0) / 5.0,
        (context.temperature if context.temperature < 2.0 else 2.0) - 1.0,
    )
    if level is FeatureLevel.F1:
        return past
    entropy, match, kind = context.target_entropy, context.suffix_match, context.token_class
    top_prob, margin = context.target_top_prob, context.target_margin
    seen = (
        *past,
        0.0 if entropy is None else 1.0 - 2.0 * exp(-entropy),
        0.0 if top_prob is None else 2.0 * top_prob - 1.0,
        0.0 if margin is None else 2.0 * margin - 1.0,
        1.0 if context.last_token_repeats else 0.0,
        0.0 if match is None else log2(1 + match) / 2.0 - 1.0,
        *(_NO_CLASS if kind is None else _CLASSES[kind]),
    )
    if level is FeatureLevel.F2:
        return seen
    hidden = _NO_HIDDEN if context.hidden is None else [0.5 * value for value in context.hidden]
    if level is FeatureLevel.F3:
        return (*seen, *hidden)
    return (*seen, *hidden, *_margins(context.draft_margins, context.limit))


def _margins(margins: Sequence[float] | None, limit: int) -> list[float]:
    """One number for each position up to the limit; 0 where the margin is unknown."""
    known = [] if margins is None else [1.0 - 2.0 * exp(-margin) for margin in margins[:limit]]
    return known + [0.0] * (limit - len(known))
