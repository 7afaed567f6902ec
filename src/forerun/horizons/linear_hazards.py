"""Linear rejection hazards with square loss and projected online gradient descent: what the regret analysis is about.

It knows features and evidence as numbers; costs, horizons and exploration are not its business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt
from typing import final

import numpy as np

from forerun.errors import ForerunError
from forerun.horizons.evidence import Evidence
from forerun.horizons.learner import HazardLearner, Learner
from forerun.horizons.plain import check_keys, read_floats, read_int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Linear(Learner):
    """Settings of `LinearHazards`, the theory mode.

    Attributes:
        radius: of the ball that parameters are projected to, around their start.
        step: eta; in round t the step is eta * t^-decay.
        decay: 0 for a number of rounds known in advance; without one 1/2 (full feedback) or 3/5 (epsilon = t^-1/5).
        slopes_per_position: weights of their own for every position, as the analysis has it; False shares the slopes
            and leaves each position its bias.

    Raises:
        ForerunError: a radius or step not above 0, or a decay outside [0, 1].
    """

    radius: float = 2.0
    step: float = 0.05
    decay: float = 0.0
    slopes_per_position: bool = True

    def __post_init__(self) -> None:
        if not (0.0 < self.radius < inf and 0.0 < self.step < inf and 0.0 <= self.decay <= 1.0):
            raise ForerunError(
                f"radius {self.radius}, step {self.step} and decay {self.decay}: the first two must be above 0, decay "
                "in [0, 1]"
            )

    def start(self, *, num_features: int, position_feature: bool, prior_hazards: Sequence[float]) -> LinearHazards:
        """See :class:`Learner`."""
        if position_feature:
            raise ForerunError("linear hazards take no features by position; choose level F3 or below")
        return LinearHazards(num_features=num_features, prior_hazards=prior_hazards, settings=self)


@final
class LinearHazards(HazardLearner):
    """h_j = <theta_j, (1, x)>, clipped to [0, 1] for prediction only.

    Loss of a round: l(theta) = sum over the evidence of importance * weight * (<theta_j, (1, x)> - y)^2, convex in
    theta. Step: theta <- P_B(theta - eta_t * gradient), B the ball of the given radius around the start (biases at the
    prior hazards, slopes 0), in the space of all positions' parameters together. Clipping the prediction only brings
    it nearer to a hazard, so Lemma 1 bounds the clipped one by the loss of the unclipped.

    Args:
        num_features: length of the feature vectors.
        prior_hazards: for position 1, 2, ...; the last one serves all deeper positions.
        settings: radius, steps, shape.

    References:
        AMTP, regret: online gradient descent against a path of comparators of length P_T, full feedback
        O(sqrt(T (1 + P_T))) in survival-weighted squared error, O(sqrt(T (1 + P_T) / epsilon)) with inverse-probability
        weights; through Cauchy-Schwarz T^3/4 (1 + P_T)^1/4 and T^4/5 (1 + P_T)^1/5 in throughput.
    """

    def __init__(self, *, num_features: int, prior_hazards: Sequence[float], settings: Linear) -> None:
        self.settings = settings
        self._num_features = num_features
        self._prior = list(prior_hazards)
        self._rounds = 0
        self._bias_moves = np.zeros(0)  # distance from the prior, by position
        rows = 0 if settings.slopes_per_position else 1
        self._slopes = np.zeros((rows, num_features))  # (positions, features), one row where shared

    @property
    def rounds(self) -> int:
        """Steps taken."""
        return self._rounds

    def predict(self, features: Sequence[float], limit: int) -> list[float]:
        """The hazards of positions 1..limit."""
        clipped: list[float] = self._values(np.asarray(features), limit).clip(0.0, 1.0).tolist()
        return clipped

    def gradient(self, features: Sequence[float], evidence: Evidence) -> np.ndarray:
        """Derivative of the round's loss by each position's value: 2 * importance * weight * (<theta_j, x> - y)."""
        factors, labels = np.array(evidence.factors), np.array(evidence.labels)
        gradient: np.ndarray = 2.0 * factors * (self._values(np.asarray(features), len(labels)) - labels)
        return gradient

    def update(self, features: Sequence[float], evidence: Evidence) -> None:
        """One projected step; rounds without evidence count as rounds with gradient 0."""
        self._rounds += 1
        count = len(evidence.weights)
        if not count:
            return
        settings = self.settings
        gradient = self.gradient(features, evidence) * (settings.step * self._rounds**-settings.decay)
        self._bias_moves[:count] -= gradient
        if settings.slopes_per_position:
            self._slopes[:count] -= np.outer(gradient, features)
        else:
            self._slopes[0] -= gradient.sum() * np.asarray(features)
        distance = sqrt(float(self._bias_moves @ self._bias_moves) + float(np.vdot(self._slopes, self._slopes)))
        if distance > settings.radius:
            self._bias_moves *= settings.radius / distance
            self._slopes *= settings.radius / distance

    def state_dict(self) -> dict[str, object]:
        """The learned state as plain data."""
        return {
            "rounds": self._rounds,
            "bias_moves": self._bias_moves.tolist(),
            "slopes": self._slopes.ravel().tolist(),
        }

    def load_state_dict(self, data: object) -> None:
        """Take over a saved state.

        Raises:
            ForerunError: wrong keys or kinds, or numbers that do not fit together.
        """
        state = check_keys(data, ("rounds", "bias_moves", "slopes"), "linear hazards")
        moves = np.array(read_floats(state["bias_moves"], "bias_moves"))
        slopes = np.array(read_floats(state["slopes"], "slopes"))
        rows = len(moves) if self.settings.slopes_per_position else 1
        if len(slopes) != rows * self._num_features:
            raise ForerunError(
                f"linear hazards: {len(slopes)} slopes, where {rows} rows of {self._num_features} features belong"
            )
        self._rounds = read_int(state["rounds"], "rounds")
        self._bias_moves, self._slopes = moves, slopes.reshape(rows, self._num_features)

    def _values(self, features: np.ndarray, limit: int) -> np.ndarray:
        """<theta_j, (1, x)>, unclipped."""
        known = len(self._bias_moves)
        if known < limit:
            self._bias_moves = np.concatenate([self._bias_moves, np.zeros(limit - known)])
            if self.settings.slopes_per_position:
                self._slopes = np.concatenate([self._slopes, np.zeros((limit - known, self._num_features))])
        prior = [*self._prior[:limit], *[self._prior[-1]] * (limit - len(self._prior))]
        slopes = self._slopes[:limit] if self.settings.slopes_per_position else self._slopes
        values: np.ndarray = np.array(prior) + self._bias_moves[:limit] + slopes @ features
        return values


def theory_rates(
    rounds: int, *, path_length: float = 0.0, diameter: float, gradient_bound: float, partial: bool = True
) -> tuple[float, float]:
    """For a known number of rounds T: epsilon = ((1 + P) / T)^1/5 and eta = D sqrt(e (1 + P) / T) / G.

    With full feedback epsilon is 0 and e is 1; with partial feedback e is epsilon, because inverse-probability weights
    multiply the second moment of the gradient by at most 1 / epsilon.

    Args:
        rounds: T, at least 1.
        path_length: P, how far the best parameters travel in all.
        diameter: D, of the ball.
        gradient_bound: G, of a round's gradient before inverse-probability weights.
        partial: whether positions beyond the horizon stay unseen.

    Returns:
        epsilon and eta.

    Example:
        >>> epsilon, step = theory_rates(100_000, diameter=2.0, gradient_bound=4.0)
        >>> round(epsilon, 6)
        0.1
    """
    if rounds < 1 or not (path_length >= 0.0 and diameter > 0.0 and gradient_bound > 0.0):
        raise ForerunError("theory_rates needs at least 1 round, a path of at least 0, diameter and bound above 0")
    drift = (1.0 + path_length) / rounds
    epsilon = min(1.0, drift**0.2) if partial else 0.0
    return epsilon, diameter * sqrt((epsilon if partial else 1.0) * drift) / gradient_bound
