"""Recursive least squares with non-negative slopes: seconds as a sum of causes, for cells that nobody measured."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import final

import numpy as np

from forerun.horizons.plain import check_keys, read_float, read_floats, read_int

FORGETTING = 0.999
START_VARIANCE = 1e3
TRACE_MAX = 1e6
HUBER = 3.0
MIN_ROUNDS = 8


@final
class RecursiveLeastSquares:
    """y ~ <w, x> with w >= 0, exponentially forgetting, robust to single large errors.

    P <- (P - P x x' P / (f + x' P x)) / f;  w <- max(0, w + P x clip(y - <w, x>, 3 sigma)), sigma a running size of the
    errors. P is scaled down where its trace exceeds 1e6, so that long spells without news do not wind it up.

    Args:
        size: number of features; the first should be 1.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._weights = np.zeros(size)
        self._inverse = np.eye(size) * START_VARIANCE
        self._sigma = 0.0
        self._rounds = 0

    @property
    def ready(self) -> bool:
        """Whether it has seen enough to be asked."""
        return self._rounds >= MIN_ROUNDS

    @property
    def weights(self) -> tuple[float, ...]:
        """W."""
        return tuple(self._weights.tolist())

    def predict(self, features: np.ndarray) -> np.ndarray:
        """<w, x> for every row x."""
        values: np.ndarray = features @ self._weights
        return values

    def observe(self, features: Sequence[float], value: float) -> None:
        """One step."""
        x = np.asarray(features)
        error = value - float(x @ self._weights)
        self._rounds += 1
        if self._rounds > MIN_ROUNDS:
            bound = HUBER * self._sigma
            error = min(max(error, -bound), bound)
        self._sigma = sqrt(self._sigma**2 + max(0.05, 1.0 / self._rounds) * (error**2 - self._sigma**2))
        gain = self._inverse @ x
        gain = gain / (FORGETTING + float(x @ gain))
        self._weights = np.maximum(0.0, self._weights + gain * error)
        self._inverse = (self._inverse - np.outer(gain, x @ self._inverse)) / FORGETTING
        trace = float(np.trace(self._inverse))
        if trace > TRACE_MAX:
            self._inverse *= TRACE_MAX / trace

    def forget(self) -> None:
        """Trust the weights no longer: the next rounds move them as the first ones did."""
        self._inverse = np.eye(self._size) * START_VARIANCE

    def state_dict(self) -> dict[str, object]:
        """The state as plain data."""
        return {
            "weights": self._weights.tolist(),
            "inverse": self._inverse.ravel().tolist(),
            "sigma": self._sigma,
            "rounds": self._rounds,
        }

    def load_state_dict(self, data: object) -> None:
        """Take over a saved state.

        Raises:
            ForerunError: a key is missing, unknown or of the wrong kind.
        """
        state = check_keys(data, ("weights", "inverse", "sigma", "rounds"), "least squares")
        self._weights = np.array(read_floats(state["weights"], "weights")).reshape(self._size)
        self._inverse = np.array(read_floats(state["inverse"], "inverse")).reshape(self._size, self._size)
        self._sigma = read_float(state["sigma"], "sigma")
        self._rounds = read_int(state["rounds"], "rounds")
