"""Do predicted survivals come true? On a fixed text every position's accepted length is known, drafted or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float64

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
    accepted, limits = (
        _by_round(run, [np.array(track.accepted) for track in tracks]),
        _by_round(run, [track.limits for track in tracks]),
    )
    depths = np.arange(1, run.predicted.shape[1] + 1)
    counted = np.isfinite(run.predicted) & (depths <= limits[:, None])
    if not counted.any():
        return None
    predicted = run.predicted[counted]
    came_true = (accepted[:, None] >= depths)[counted].astype(np.float64)
    bins = np.minimum((predicted * BINS).astype(np.int64), BINS - 1)
    gaps = np.bincount(bins, weights=predicted - came_true, minlength=BINS)
    return Calibration(
        predictions=len(predicted),
        brier=float(((predicted - came_true) ** 2).mean()),
        ece=float(np.abs(gaps).sum() / len(predicted)),
        hazard_error=_hazard_error(run, tracks, counted),
    )


def _hazard_error(run: Replayed, tracks: Sequence[Track], counted: np.ndarray) -> float | None:
    known = [track.survivals for track in tracks if track.survivals is not None]
    if len(known) != len(tracks):
        return None
    true, predicted = _by_round(run, known)[:, : counted.shape[1]], run.predicted
    before = _shifted(true)
    wrong = np.where(counted, hazards(true) - hazards(np.where(counted, predicted, 1.0)), 0.0)
    rounds = counted.any(axis=1)
    return float((before * wrong**2).sum(axis=1)[rounds].mean())


def hazards(survivals: Float64[np.ndarray, "rounds window"]) -> Float64[np.ndarray, "rounds window"]:
    """1 - s_j / s_{j-1}; 1 behind a survival of 0."""
    before = _shifted(survivals)
    return np.asarray(1.0 - np.divide(survivals, before, out=np.zeros_like(survivals), where=before > 0.0))


def _shifted(survivals: Float64[np.ndarray, "rounds window"]) -> Float64[np.ndarray, "rounds window"]:
    return np.concatenate([np.ones((len(survivals), 1)), survivals[:, :-1]], axis=1)


def _by_round(run: Replayed, values: Sequence[np.ndarray]) -> np.ndarray:
    """What each round's position has in arrays that have an entry for each position of each track."""
    starts = np.concatenate([[0], np.cumsum([len(each) for each in values])])
    return np.asarray(np.concatenate(list(values))[starts[run.tracks] + run.positions])
