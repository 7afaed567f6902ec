"""Every survival that a replayed policy predicted, beside what the text says became of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Bool, Float64, Int64

from forerun.evaluation.replay import Replayed, Track


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Predictions:
    """One row for each round; entries that are not counted mean nothing.

    Attributes:
        tracks: index of each round's track.
        counted: the position lies within the round's limit, and its survival was predicted.
        survivals: predicted P(at least j drafts stand).
        accepted: drafts of the whole window that stand.
        prefix_weights: probability that the drafts before j stand, the verifier's coins integrated out.
        mismatches: 1 - overlap at j, given the drafts before it.
        true_survivals: where a simulation knows them.
    """

    tracks: Int64[np.ndarray, " rounds"]
    counted: Bool[np.ndarray, "rounds window"]
    survivals: Float64[np.ndarray, "rounds window"]
    accepted: Int64[np.ndarray, " rounds"]
    prefix_weights: Float64[np.ndarray, "rounds window"]
    mismatches: Float64[np.ndarray, "rounds window"]
    true_survivals: Float64[np.ndarray, "rounds window"] | None

    @property
    def stood(self) -> Bool[np.ndarray, "rounds window"]:
        """At least j drafts stand."""
        return np.asarray(self.accepted[:, None] >= np.arange(1, self.counted.shape[1] + 1))

    @property
    def reached(self) -> Bool[np.ndarray, "rounds window"]:
        """Counted, and all drafts before j stand."""
        return np.asarray(self.counted & (self.accepted[:, None] >= np.arange(self.counted.shape[1])))

    @property
    def hazards(self) -> Float64[np.ndarray, "rounds window"]:
        """Predicted P(j is rejected | all before it stand)."""
        return hazards(np.where(self.counted, self.survivals, 1.0))

    @property
    def hazard_errors(self) -> Float64[np.ndarray, " rounds"] | None:
        """Sum over j of s_{j-1} (h_j - predicted h_j)^2 with the true s and h: the quantity of AMTP's Lemma 1."""
        if self.true_survivals is None:
            return None
        wrong = np.where(self.counted, hazards(self.true_survivals) - self.hazards, 0.0)
        return np.asarray((shifted(self.true_survivals) * wrong**2).sum(axis=1))

    @property
    def soft_errors(self) -> Float64[np.ndarray, " rounds"]:
        """Sum over j of w_j (y_j - predicted h_j)^2 with prefix weights w and mismatches y, which need no truth.

        Its mean is that of the hazard errors and a part that no predictor changes: how much mismatches differ between
        rounds with the same hazard. So differences between predictors are differences of hazard errors.
        """
        wrong = np.where(self.counted, self.mismatches - self.hazards, 0.0)
        return np.asarray((self.prefix_weights * wrong**2).sum(axis=1))


def predictions(run: Replayed, tracks: Sequence[Track]) -> Predictions:
    """Of all rounds of a run, all positions up to each round's limit; none where the policy predicted nothing."""
    limits = by_round(run, [track.limits for track in tracks])
    window = run.predicted.shape[1]
    known = [track.survivals for track in tracks if track.survivals is not None and not track.estimated]
    probabilities = by_round(run, [_table(track.accept_probabilities, window) for track in tracks])
    return Predictions(
        tracks=run.tracks,
        counted=np.isfinite(run.predicted) & (np.arange(1, window + 1) <= limits[:, None]),
        survivals=run.predicted,
        accepted=by_round(run, [np.array(track.accepted) for track in tracks]),
        prefix_weights=np.cumprod(shifted(probabilities), axis=1),
        mismatches=1.0 - by_round(run, [_table(track.overlaps, window) for track in tracks]),
        true_survivals=by_round(run, known)[:, :window] if len(known) == len(tracks) else None,
    )


def joined(parts: Sequence[Predictions]) -> Predictions:
    """Runs on different texts as one; tracks are numbered on."""
    starts = np.cumsum([0, *(int(part.tracks.max(initial=-1)) + 1 for part in parts[:-1])])
    truths = [part.true_survivals for part in parts if part.true_survivals is not None]
    return Predictions(
        tracks=np.concatenate([part.tracks + start for part, start in zip(parts, starts, strict=True)]),
        counted=np.concatenate([part.counted for part in parts]),
        survivals=np.concatenate([part.survivals for part in parts]),
        accepted=np.concatenate([part.accepted for part in parts]),
        prefix_weights=np.concatenate([part.prefix_weights for part in parts]),
        mismatches=np.concatenate([part.mismatches for part in parts]),
        true_survivals=np.concatenate(truths) if len(truths) == len(parts) else None,
    )


def hazards(survivals: Float64[np.ndarray, "rounds window"]) -> Float64[np.ndarray, "rounds window"]:
    """1 - s_j / s_{j-1}; 1 behind a survival of 0."""
    before = shifted(survivals)
    return np.asarray(1.0 - np.divide(survivals, before, out=np.zeros_like(survivals), where=before > 0.0))


def shifted(survivals: Float64[np.ndarray, "rounds window"]) -> Float64[np.ndarray, "rounds window"]:
    """What stands one position earlier; 1 at the first."""
    return np.concatenate([np.ones((len(survivals), 1)), survivals[:, :-1]], axis=1)


def _table(rows: Sequence[Sequence[float]], window: int) -> np.ndarray:
    """Rows of different lengths, filled up with 0."""
    table = np.zeros((len(rows), window))
    for index, row in enumerate(rows):
        table[index, : len(row)] = row
    return table


def by_round(run: Replayed, values: Sequence[np.ndarray]) -> np.ndarray:
    """What each round's position has in arrays that have an entry for each position of each track."""
    starts = np.concatenate([[0], np.cumsum([len(each) for each in values])])
    return np.asarray(np.concatenate(list(values))[starts[run.tracks] + run.positions])
