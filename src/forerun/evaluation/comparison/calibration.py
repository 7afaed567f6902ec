"""Do predicted survivals come true? On a fixed text every position's accepted length is known, drafted or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from forerun.evaluation.comparison.predictions import predictions
from forerun.evaluation.replay import Replayed, Track

BINS = 10


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Of all rounds with predictions, all positions up to each round's limit.

    Attributes:
        predictions: how many.
        brier: mean of (s_j - 1{at least j drafts stand})^2.
        ece: expected calibration error, ten bins of equal width: mean over predictions of |mean predicted - share that
            came true| of their bin.
        hazard_error: mean over rounds of sum over j of s_{j-1} (h_j - predicted h_j)^2 with the true s and h, the
            quantity of AMTP's Lemma 1; ``None`` where the truth is not known.
    """

    predictions: int
    brier: float
    ece: float
    hazard_error: float | None


def calibration(run: Replayed, tracks: Sequence[Track]) -> Calibration | None:
    """How good a replayed policy's survivals were; ``None`` where it predicted none."""
    found = predictions(run, tracks)
    counted = found.counted
    if not counted.any():
        return None
    predicted = found.survivals[counted]
    came_true = found.stood[counted].astype(np.float64)
    gaps = np.bincount(bin_of(predicted), weights=predicted - came_true, minlength=BINS)
    errors = found.hazard_errors
    return Calibration(
        predictions=len(predicted),
        brier=float(((predicted - came_true) ** 2).mean()),
        ece=float(np.abs(gaps).sum() / len(predicted)),
        hazard_error=None if errors is None else float(errors[counted.any(axis=1)].mean()),
    )


def bin_of(predicted: np.ndarray) -> np.ndarray:
    """Which of the ten bins each predicted survival falls into."""
    return np.minimum((predicted * BINS).astype(np.int64), BINS - 1)
