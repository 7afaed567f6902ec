"""Logistic rejection hazards with shared slopes and a bias per position, learned online by AdaGrad.

It knows features and evidence as numbers; costs, horizons and exploration are not its business.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log, sqrt
from operator import mul
from typing import final

from forerun.errors import ForerunError
from forerun.horizons.evidence import Evidence
from forerun.horizons.plain import check_keys, read_floats

HAZARD_MIN = 1e-3
LOGIT_MAX = log((1.0 - HAZARD_MIN) / HAZARD_MIN)
INITIAL_SQUARES = 1.0
"""AdaGrad's sums of squares start here: without it the very first round would move every coordinate a whole step."""


@final
class LogisticHazards:
    """h_j = sigmoid(bias_j + <slopes, features>), clipped to [0.001, 0.999].

    Loss of a round: sum over the evidence of importance * weight * (-y log h - (1 - y) log(1 - h)). Its expectation
    exceeds the best possible by sum of s_{j-1} KL(h_j, predicted h_j) >= 2 sum of s_{j-1} (h_j - predicted h_j)^2, the
    quantity of AMTP's Lemma 1; unlike the square loss it is convex in the parameters.

    Biases start at the log-odds of the prior hazards, slopes at 0. Positions get their bias when they are first seen,
    so the largest horizon need not be known. At the clip, gradients that push further out are dropped.

    Args:
        num_features: length of the feature vectors.
        prior_hazards: prior for position 1, 2, ...; the last one serves all deeper positions.
        learning_rate: AdaGrad's step length.
    """

    def __init__(self, *, num_features: int, prior_hazards: Sequence[float], learning_rate: float) -> None:
        self.learning_rate = learning_rate
        self._prior_logits = [log(hazard / (1.0 - hazard)) for hazard in prior_hazards]
        self._slopes = [0.0] * num_features
        self._slope_squares = [INITIAL_SQUARES] * num_features
        self._biases: list[float] = []
        self._bias_squares: list[float] = []

    @property
    def biases(self) -> tuple[float, ...]:
        """Log-odds of the hazard at features 0, for each position seen so far."""
        return tuple(self._biases)

    @property
    def slopes(self) -> tuple[float, ...]:
        """Change of the log-odds per unit of each scaled feature; positive means more rejections."""
        return tuple(self._slopes)

    def predict(self, features: Sequence[float], limit: int) -> list[float]:
        """The hazards of positions 1..limit. O(limit + features)."""
        while len(self._biases) < limit:
            self._biases.append(self._prior_logits[min(len(self._biases), len(self._prior_logits) - 1)])
            self._bias_squares.append(INITIAL_SQUARES)
        shared = sum(map(mul, self._slopes, features))
        # A plain loop over floats: arrays of this size cost more to build than to compute with.
        hazards = []
        for bias in self._biases[:limit]:
            logit = bias + shared
            if logit > LOGIT_MAX:
                logit = LOGIT_MAX
            elif logit < -LOGIT_MAX:
                logit = -LOGIT_MAX
            hazards.append(1.0 / (1.0 + exp(-logit)))
        return hazards

    def gradient(self, features: Sequence[float], evidence: Sequence[Evidence]) -> list[float]:
        """Derivative of the round's loss by the log-odds of each position: importance * weight * (h - y).

        The derivative by bias_j is its j-th entry; the derivative by a slope is the feature times the sum.
        """
        hazards = self.predict(features, len(evidence))
        return [
            item.importance * item.weight * (hazard - item.label)
            for item, hazard in zip(evidence, hazards, strict=True)
        ]

    def update(self, features: Sequence[float], evidence: Sequence[Evidence]) -> None:
        """One AdaGrad step on the round's loss: parameter -= rate * g / sqrt(sum of g^2)."""
        gradient = self.gradient(features, evidence)
        shared = sum(map(mul, self._slopes, features))
        total = 0.0
        for index, slope in enumerate(gradient):
            logit = self._biases[index] + shared
            if (logit >= LOGIT_MAX and slope < 0.0) or (logit <= -LOGIT_MAX and slope > 0.0):
                continue
            total += slope
            self._bias_squares[index] += slope * slope
            self._biases[index] -= self.learning_rate * slope / sqrt(self._bias_squares[index])
        for index, feature in enumerate(features):
            slope = total * feature
            self._slope_squares[index] += slope * slope
            self._slopes[index] -= self.learning_rate * slope / sqrt(self._slope_squares[index])

    def state_dict(self) -> dict[str, object]:
        """The learned state as plain data."""
        return {
            "biases": list(self._biases),
            "bias_squares": list(self._bias_squares),
            "slopes": list(self._slopes),
            "slope_squares": list(self._slope_squares),
        }

    def load_state_dict(self, data: object) -> None:
        """Take over a saved state.

        Raises:
            ForerunError: wrong keys or kinds, lists of different lengths, or another number of features.
        """
        state = check_keys(data, ("biases", "bias_squares", "slopes", "slope_squares"), "hazards")
        biases = read_floats(state["biases"], "biases")
        bias_squares = read_floats(state["bias_squares"], "bias_squares")
        slopes = read_floats(state["slopes"], "slopes")
        slope_squares = read_floats(state["slope_squares"], "slope_squares")
        if len(biases) != len(bias_squares) or not len(slopes) == len(slope_squares) == len(self._slopes):
            raise ForerunError(
                f"hazards: {len(biases)} biases with {len(bias_squares)} squares, {len(slopes)} slopes with "
                f"{len(slope_squares)} squares, where this model has {len(self._slopes)} features"
            )
        if min([*bias_squares, *slope_squares], default=1.0) <= 0.0:
            raise ForerunError("hazards: sums of squares must be above 0")
        self._biases, self._bias_squares = biases, bias_squares
        self._slopes, self._slope_squares = slopes, slope_squares
