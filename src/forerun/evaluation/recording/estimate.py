"""Survivals of recorded positions, estimated from other prompts: a stand-in for the truth that only a simulation has.

The model is richer than any controller's: fitted in one go on whole windows of other prompts instead of learned round
by round, with slopes that change along the draft, and with how earlier windows fared, drafted or not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64

from forerun.evaluation.replay import Track
from forerun.horizons import FeatureLevel
from forerun.horizons.features import HISTORY_NAMES, scaled_features
from forerun.horizons.history import AcceptanceHistory
from forerun.horizons.rivals.logistic import fit_logistic

FOLDS = 6
RIDGE = 10.0
LAGS = 7
RATES = (0.3, 0.05)
OF_THE_ROUND = HISTORY_NAMES.index("context_length")
"""The history's own features come before; they belong to rounds, and a position has no rounds."""
WEIGHT_MIN = 1e-4


def estimated_survivals(
    tracks: Sequence[Track], prompts: Sequence[str]
) -> tuple[Float64[np.ndarray, "positions window"], ...] | None:
    """Survivals of every position, from hazards fitted on other prompts: six parts, each estimated from the other five.

    h_j = sigmoid(b_j + <a + (j - middle) c, features>) with ridge, on survival-weighted soft labels. Features: AMTP's
    F2 without those of its own rounds, how far each of the last seven windows agreed with the text as far as that is
    committed, and running means of the first draft's fate and overlap. Hidden states are left out: on a dozen prompts
    their 32 projections made the log loss of held-out prompts worse.

    Args:
        tracks: of one temperature.
        prompts: where each comes from; tracks of one prompt stay together.

    Returns:
        One array for each track; ``None`` where all come from one prompt.
    """
    distinct = list(dict.fromkeys(prompts))
    if len(distinct) < 2:
        return None
    parts = [distinct.index(prompt) % FOLDS for prompt in prompts]
    features = [position_features(track) for track in tracks]
    window = max(track.max_limit for track in tracks)
    fits = {}
    for part in set(parts):
        others = [index for index, other in enumerate(parts) if other != part]
        fits[part] = _fitted([tracks[index] for index in others], [features[index] for index in others], window)
    return tuple(
        np.cumprod(
            np.stack([1.0 - _hazards(fits[part], own, depth, window) for depth in range(window)], axis=1), axis=1
        )
        for part, own in zip(parts, features, strict=True)
    )


def position_features(track: Track) -> Float64[np.ndarray, "positions features"]:
    """What could be known at each position before drafting, if every earlier window had been drafted and verified.

    The window that began m positions earlier drafted m tokens of the committed text: whether these stand is known, and
    nothing of its later tokens.
    """
    unknown = AcceptanceHistory()
    accepted = np.array(track.accepted)
    overlaps = np.array([each[0] if each else 0.0 for each in track.overlaps])
    means = np.zeros((len(track), 2 * len(RATES)))
    for index in range(1, len(track)):
        seen = np.repeat([float(accepted[index - 1] > 0), overlaps[index - 1]], len(RATES))
        rates = np.tile([max(rate, 1.0 / index) for rate in RATES], 2)
        means[index] = means[index - 1] + rates * (seen - means[index - 1])
    agreed = np.zeros((len(track), LAGS))
    for lag in range(1, LAGS + 1):
        agreed[lag:, lag - 1] = accepted[:-lag] >= lag
    told = np.array([scaled_features(each, unknown, FeatureLevel.F2)[OF_THE_ROUND:] for each in track.contexts])
    return np.concatenate([told, means, agreed], axis=1)


def _fitted(tracks: Sequence[Track], features: Sequence[np.ndarray], window: int) -> np.ndarray:
    """Coefficients from all positions up to the limits, weighted with the survival of the draft before them."""
    rows, labels, weights = [], [], []
    for track, own in zip(tracks, features, strict=True):
        reached = np.ones(len(track))
        for depth in range(window):
            drafted = track.limits > depth
            overlap = np.array([each[depth] if len(each) > depth else 0.0 for each in track.overlaps])
            chosen = drafted & (reached > WEIGHT_MIN)
            rows.append(_design(own[chosen], depth, window))
            labels.append(1.0 - overlap[chosen])
            weights.append(reached[chosen])
            reached = reached * [each[depth] if len(each) > depth else 0.0 for each in track.accept_probabilities]
    return fit_logistic(np.concatenate(rows), np.concatenate(labels), np.concatenate(weights), ridge=RIDGE)


def _hazards(coefficients: np.ndarray, features: np.ndarray, depth: int, window: int) -> np.ndarray:
    return np.asarray(1.0 / (1.0 + np.exp(-_design(features, depth, window) @ coefficients)))


def _design(features: np.ndarray, depth: int, window: int) -> np.ndarray:
    """A bias of the depth, the features, and the features again times the distance from the middle of the window."""
    bias = np.zeros((len(features), window))
    bias[:, depth] = 1.0
    middle = (window - 1) / 2.0
    return np.concatenate([bias, features, features * ((depth - middle) / max(middle, 1.0))], axis=1)
