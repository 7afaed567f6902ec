"""Is one way of decoding faster than another? Ratios over the same prompts, with an interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

_RESAMPLES = 10_000


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedPair:
    """One prompt decoded both ways, one right after the other."""

    tokens: int
    seconds: float
    baseline_tokens: int
    baseline_seconds: float


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedRatio:
    """Tokens per second over baseline tokens per second, sums before ratios, with a 95 % bootstrap interval."""

    estimate: float
    low: float
    high: float
    num_pairs: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Tokens per second, sums before ratios, with a 95 % bootstrap interval over answers."""

    estimate: float
    low: float
    high: float
    num_answers: int


def speed(tokens: Sequence[int], seconds: Sequence[float], *, seed: int) -> Speed:
    """Resample answers.

    Args:
        tokens: of each answer.
        seconds: of each answer.
        seed: of the resampling.
    """
    table = np.array([tokens, seconds], dtype=np.float64)  # (2, answers)
    picks = np.random.default_rng(seed).integers(table.shape[1], size=(_RESAMPLES, table.shape[1]))
    drawn_tokens, drawn_seconds = table[:, picks].sum(axis=2)
    low, high = np.quantile(drawn_tokens / drawn_seconds, [0.025, 0.975])
    whole_tokens, whole_seconds = table.sum(axis=1)
    return Speed(
        estimate=float(whole_tokens / whole_seconds), low=float(low), high=float(high), num_answers=table.shape[1]
    )


def speed_ratio(pairs: list[SpeedPair], *, seed: int) -> SpeedRatio | None:
    """Resample prompts, not tokens: tokens of one answer are not independent.

    Args:
        pairs: at least two, otherwise there is no spread and the answer is ``None``.
        seed: of the resampling.
    """
    usable = [pair for pair in pairs if pair.tokens and pair.baseline_tokens]
    if len(usable) < 2:
        return None
    table = np.array([[pair.tokens, pair.seconds, pair.baseline_tokens, pair.baseline_seconds] for pair in usable])
    picks = np.random.default_rng(seed).integers(len(table), size=(_RESAMPLES, len(table)))
    resampled = _ratio(table[picks].sum(axis=1))
    low, high = np.quantile(resampled, [0.025, 0.975])
    return SpeedRatio(estimate=float(_ratio(table.sum(axis=0))), low=float(low), high=float(high), num_pairs=len(table))


def _ratio(sums: np.ndarray) -> np.ndarray:
    tokens, seconds, baseline_tokens, baseline_seconds = np.moveaxis(sums, -1, 0)
    return np.asarray((tokens / seconds) / (baseline_tokens / baseline_seconds))
