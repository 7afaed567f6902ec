"""Logistic rejection hazards with shared slopes and a bias per position, learned online by AdaGrad.

It knows features and evidence as numbers; costs, horizons and exploration are not its business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from math import exp, inf, log, sqrt
from operator import add, mul, neg, sub, truediv
from typing import final

import numpy as np

from forerun.errors import ForerunError
from forerun.horizons.evidence import Evidence
from forerun.horizons.learner import HAZARD_MIN, HazardLearner, Learner
from forerun.horizons.plain import check_keys, read_floats

LOGIT_MAX = log((1.0 - HAZARD_MIN) / HAZARD_MIN)
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
        # Lists of floats: arrays of this size cost more to build than to compute with.
        return [1.0 / (1.0 + odds) for odds in map(exp, map(neg, _clipped(self._logits(features, limit))))]

    def predict_rows(self, features: Sequence[Sequence[float]], limit: int) -> np.ndarray:
        """The hazards of many requests: (requests, limit)."""
        if self._position_feature:
            return super().predict_rows(features, limit)
        biases = self._logits((), limit)
        shared = np.array(features).reshape(len(features), len(self._slopes)) @ np.array(self._slopes)
        logits = np.add.outer(shared, biases).clip(-LOGIT_MAX, LOGIT_MAX)
        hazards: np.ndarray = 1.0 / (1.0 + np.exp(-logits))
        return hazards

    def gradient(self, features: Sequence[float], evidence: Evidence) -> list[float]:
        """Derivative of the round's loss by the log-odds of each position: importance * weight * (h - y).

        The derivative by bias_j is its j-th entry; the derivative by a slope is the sum over positions of the entry
        times the feature.
        """
        return _gradient(_clipped(self._logits(features, len(evidence.weights))), evidence)

    def update(self, features: Sequence[float], evidence: Evidence) -> None:
        """One AdaGrad step on the round's loss: parameter -= rate * g / sqrt(sum of g^2)."""
        if not evidence.weights:
            return
        logits = self._logits(features, len(evidence.weights))
        clipped = _clipped(logits)
        gradient = _gradient(clipped, evidence)
        if clipped is not logits:
            gradient = [
                0.0 if abs(logit) >= LOGIT_MAX and (logit > 0.0) is (slope < 0.0) else slope
                for logit, slope in zip(logits, gradient, strict=True)
            ]
        shared = self._num_features
        total = sum(gradient)
        slopes = [total * feature for feature in features[:shared]]
        if self._position_feature:
            slopes.append(sum(map(mul, gradient, features[shared:])))
        self._step(self._biases, self._bias_squares, gradient)
        self._step(self._slopes, self._slope_squares, slopes)

    def _step(self, values: list[float], squares: list[float], gradient: list[float]) -> None:
        """AdaGrad on the first values of a list."""
        count = len(gradient)
        squares[:count] = map(add, squares, map(mul, gradient, gradient))
        steps = map(truediv, map(mul, repeat(self.learning_rate), gradient), map(sqrt, squares))
        values[:count] = map(sub, values, steps)

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

    def _logits(self, features: Sequence[float], limit: int) -> list[float]:
        """Log-odds before the clip."""
        while len(self._biases) < limit:
            self._biases.append(self._prior_logits[min(len(self._biases), len(self._prior_logits) - 1)])
            self._bias_squares.append(INITIAL_SQUARES)
        shared = sum(map(mul, self._slopes, features))
        if not self._position_feature:
            return [bias + shared for bias in self._biases[:limit]]
        count = self._num_features
        slope = self._slopes[count]
        # the sum over all features took in the first position's own number
        shared -= slope * features[count] if len(features) > count else 0.0
        return [
            bias + shared + slope * own
            for bias, own in zip(self._biases[:limit], features[count : count + limit], strict=True)
        ]


def _clipped(logits: list[float]) -> list[float]:
    """The same list where nothing stands at the clip."""
    if logits and (max(logits) >= LOGIT_MAX or min(logits) <= -LOGIT_MAX):
        return [min(max(logit, -LOGIT_MAX), LOGIT_MAX) for logit in logits]
    return logits


def _gradient(logits: list[float], evidence: Evidence) -> list[float]:
    factors = map(mul, evidence.weights, evidence.importances)
    odds = map(exp, map(neg, logits))
    return [
        factor * (1.0 / (1.0 + odd) - label) for factor, odd, label in zip(factors, odds, evidence.labels, strict=True)
    ]
