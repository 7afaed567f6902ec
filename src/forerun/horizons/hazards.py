"""Logistic rejection hazards with shared slopes and a bias per position, learned online by AdaGrad.

It knows features and evidence as numbers; costs, horizons and exploration are not its business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, log, sqrt
from operator import mul, sub
from typing import final

import numpy as np

from forerun.errors import ForerunError
from forerun.horizons.evidence import Evidence
from forerun.horizons.learner import HAZARD_MIN, HazardLearner, Learner
from forerun.horizons.plain import check_keys, read_floats

LOGIT_MAX = log((1.0 - HAZARD_MIN) / HAZARD_MIN)
LOWEST, HIGHEST = 1.0 / (1.0 + exp(LOGIT_MAX)), 1.0 / (1.0 + exp(-LOGIT_MAX))
"""Hazards at the clip, as they are computed there."""
INITIAL_SQUARES = 1.0
"""AdaGrad's sums of squares start here: without it the very first round would move every coordinate a whole step."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Logistic(Learner):
    """Settings of `LogisticHazards`, the practice mode.

    Attributes:
        learning_rate: AdaGrad's step length.

    Raises:
        ForerunError: the rate is not above 0.
    """

    learning_rate: float = 0.2

    def __post_init__(self) -> None:
        if not 0.0 < self.learning_rate < inf:
            raise ForerunError(f"learning_rate is {self.learning_rate}: give a number above 0")

    def start(self, *, num_features: int, position_feature: bool, prior_hazards: Sequence[float]) -> LogisticHazards:
        """See :class:`Learner`."""
        return LogisticHazards(
            num_features=num_features,
            position_feature=position_feature,
            prior_hazards=prior_hazards,
            learning_rate=self.learning_rate,
        )


@final
class LogisticHazards(HazardLearner):
    """h_j = sigmoid(bias_j + <slopes, features>), clipped to [0.001, 0.999].

    Loss of a round: sum over the evidence of importance * weight * (-y log h - (1 - y) log(1 - h)). Its expectation
    exceeds the best possible by sum of s_{j-1} KL(h_j, predicted h_j) >= 2 sum of s_{j-1} (h_j - predicted h_j)^2, the
    quantity of AMTP's Lemma 1; unlike the square loss it is convex in the parameters.

    Biases start at the log-odds of the prior hazards, slopes at 0. Positions get their bias when they are first seen,
    so the largest horizon need not be known. At the clip, gradients that push further out are dropped. Where positions
    have a number of their own, its slope is shared by all of them too.

    Args:
        num_features: numbers that all positions share.
        prior_hazards: prior for position 1, 2, ...; the last one serves all deeper positions.
        learning_rate: AdaGrad's step length.
        position_feature: whether feature vectors go on with one number for each position.
        position_slope: where the slope of that number starts.
    """

    def __init__(
        self,
        *,
        num_features: int,
        prior_hazards: Sequence[float],
        learning_rate: float,
        position_feature: bool = False,
        position_slope: float = 0.0,
    ) -> None:
        self.learning_rate = learning_rate
        self._prior_logits = [log(hazard / (1.0 - hazard)) for hazard in prior_hazards]
        self._num_features = num_features
        self._position_feature = position_feature
        self._slopes = [*[0.0] * num_features, *[position_slope] * position_feature]
        self._slope_squares = [INITIAL_SQUARES] * len(self._slopes)
        self._biases: list[float] = []
        self._bias_squares: list[float] = []
        self._known_features: tuple[float, ...] | None = None
        self._known_hazards: list[float] = []
        self._clipped = False

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
        return self._hazards(tuple(features), limit)[:limit]

    def predict_rows(self, features: Sequence[Sequence[float]], limit: int) -> np.ndarray:
        """The hazards of many requests: (requests, limit)."""
        if self._position_feature:
            return super().predict_rows(features, limit)
        self._meet(limit)
        shared = np.array(features).reshape(len(features), len(self._slopes)) @ np.array(self._slopes)
        logits = np.add.outer(shared, self._biases[:limit]).clip(-LOGIT_MAX, LOGIT_MAX)
        hazards: np.ndarray = 1.0 / (1.0 + np.exp(-logits))
        return hazards

    def gradient(self, features: Sequence[float], evidence: Evidence) -> list[float]:
        """Derivative of the round's loss by the log-odds of each position: importance * weight * (h - y).

        The derivative by bias_j is its j-th entry; the derivative by a slope is the sum over positions of the entry
        times the feature.
        """
        factors, labels = evidence.factors, evidence.labels
        hazards = self._hazards(tuple(features), len(labels))  # of deeper positions, too, where they were asked for
        return [factor * (hazard - label) for factor, hazard, label in zip(factors, hazards, labels, strict=False)]

    def update(self, features: Sequence[float], evidence: Evidence) -> None:
        """One AdaGrad step on the round's loss: parameter -= rate * g / sqrt(sum of g^2)."""
        labels, rate = evidence.labels, self.learning_rate
        if not labels:
            return
        features = tuple(features)
        hazards = self._hazards(features, len(labels))
        if self._clipped:
            labels = list(map(_inward, hazards, labels))
        # Steps are taken where gradients are found: a list for each in between costs a fifth more.
        total, values, squares = 0.0, self._biases, self._bias_squares
        for index, (factor, hazard, label) in enumerate(zip(evidence.factors, hazards, labels, strict=False)):
            slope = factor * (hazard - label)
            total += slope
            squares[index] = square = squares[index] + slope * slope
            values[index] -= rate * slope / sqrt(square)
        values, squares = self._slopes, self._slope_squares
        for index, feature in enumerate(features[: self._num_features]):
            slope = total * feature
            squares[index] = square = squares[index] + slope * slope
            values[index] -= rate * slope / sqrt(square)
        if self._position_feature:
            own = features[self._num_features :]
            slope = sum(map(mul, map(mul, evidence.factors, map(sub, hazards, labels)), own))
            squares[-1] = square = squares[-1] + slope * slope
            values[-1] -= rate * slope / sqrt(square)
        self._known_features = None

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
        self._known_features = None

    def _hazards(self, features: tuple[float, ...], count: int) -> list[float]:
        """Of at least `count` positions; kept until the next step, which mostly needs the same ones."""
        if features is self._known_features and count <= len(self._known_hazards):
            return self._known_hazards
        self._meet(count)
        shared = self._num_features
        common = sum(map(mul, self._slopes, features[:shared]))
        biases = self._biases[:count]
        if self._position_feature:
            slope, own = self._slopes[shared], features[shared : shared + count]
            biases = [bias + slope * number for bias, number in zip(biases, own, strict=True)]
        hazards, clipped = [], False
        for bias in biases:
            logit = bias + common
            if not -LOGIT_MAX < logit < LOGIT_MAX:
                logit, clipped = min(max(logit, -LOGIT_MAX), LOGIT_MAX), True
            hazards.append(1.0 / (1.0 + exp(-logit)))
        self._known_features, self._known_hazards, self._clipped = features, hazards, clipped
        return hazards

    def _meet(self, positions: int) -> None:
        """Biases for positions up to this one."""
        for index in range(len(self._biases), positions):
            self._biases.append(self._prior_logits[min(index, len(self._prior_logits) - 1)])
            self._bias_squares.append(INITIAL_SQUARES)


def _inward(hazard: float, label: float) -> float:
    """The label, at the clip one that leaves the hazard where it is instead of pushing it further out."""
    return hazard if (hazard >= HIGHEST and label > hazard) or (hazard <= LOWEST and label < hazard) else label
