"""Running means of log seconds by cell, with outliers kept out and drift noticed."""

from __future__ import annotations

from math import exp, isfinite, log
from statistics import median
from typing import final

from forerun.errors import ForerunError
from forerun.horizons.drift import PageHinkley
from forerun.horizons.plain import check_keys, read_float, read_floats, read_int, read_list
from forerun.horizons.residuals import ResidualGate

CELL_RATE = 0.05
LEVEL_RATE = 0.2
MIN_SAMPLES = 3

Key = tuple[int, ...]


@final
class CostCells:
    """log seconds = level + cell. See `CostTable` for what the level, the rates and the outlier gate are for.

    A lasting change (Page-Hinkley on the residuals) halves the counts, so that cells move faster for a while.

    Attributes:
        drifts: how often that happened.
    """

    def __init__(self) -> None:
        self.drifts = 0
        self._level = 0.0
        self._means: dict[Key, float] = {}
        self._counts: dict[Key, int] = {}
        self._pending: dict[Key, list[float]] = {}
        self._gate = ResidualGate()
        self._drift = PageHinkley()

    @property
    def keys(self) -> tuple[Key, ...]:
        """Measured cells, in order."""
        return tuple(sorted(self._means))

    @property
    def outliers(self) -> int:
        """Times kept out."""
        return self._gate.outliers

    @property
    def level(self) -> float:
        """Factor that all cells have in common."""
        return exp(self._level)

    def seconds(self, key: Key) -> float:
        """Of a measured cell."""
        return exp(self._level + self._means[key])

    def count(self, key: Key) -> float:
        """Samples behind a cell, at most the memory of its running mean."""
        return min(float(self._counts[key]), 2.0 / CELL_RATE - 1.0)

    def profile(self, key: Key, seconds: list[float]) -> None:
        """Found a cell on the median of timed runs."""
        self._means[key] = median(_log(value) for value in seconds) - self._level
        self._counts[key] = len(seconds)

    def observe(self, key: Key, seconds: float) -> bool:
        """Take in one time.

        Returns:
            Whether the machine seems to have changed for good.
        """
        value = _log(seconds) - self._level
        if key not in self._means:
            waiting = self._pending.setdefault(key, [])
            waiting.append(value)
            if len(waiting) >= MIN_SAMPLES:
                self._means[key], self._counts[key] = median(waiting), len(waiting)
                del self._pending[key]
            return False
        residual = value - self._means[key]
        if not self._gate.admits(residual):
            return False
        self._counts[key] += 1
        self._level += LEVEL_RATE * residual
        self._means[key] += max(CELL_RATE, 1.0 / self._counts[key]) * residual
        if not self._drift.observe(residual):
            return False
        self.drifts += 1
        self._counts = {cell: max(1, count // 2) for cell, count in self._counts.items()}
        return True

    def state_dict(self) -> dict[str, object]:
        """The state as plain data."""
        return {
            "level": self._level,
            "cells": [
                {"key": list(key), "log_seconds": self._means[key], "count": self._counts[key]} for key in self.keys
            ],
            "pending": [{"key": list(key), "log_seconds": list(self._pending[key])} for key in sorted(self._pending)],
            "gate": self._gate.state_dict(),
            "drift": self._drift.state_dict(),
            "drifts": self.drifts,
        }

    def load_state_dict(self, data: object) -> None:
        """Take over a saved state.

        Raises:
            ForerunError: a key is missing, unknown or of the wrong kind.
        """
        state = check_keys(data, ("level", "cells", "pending", "gate", "drift", "drifts"), "cost cells")
        self._level = read_float(state["level"], "level")
        for entry in read_list(state["cells"], "cells"):
            cell = check_keys(entry, ("key", "log_seconds", "count"), "cost cell")
            key = _key(cell["key"])
            self._means[key] = read_float(cell["log_seconds"], "log_seconds")
            self._counts[key] = max(1, read_int(cell["count"], "count"))
        for entry in read_list(state["pending"], "pending"):
            cell = check_keys(entry, ("key", "log_seconds"), "pending cost cell")
            self._pending[_key(cell["key"])] = read_floats(cell["log_seconds"], "log_seconds")
        self._gate.load_state_dict(state["gate"])
        self._drift.load_state_dict(state["drift"])
        self.drifts = read_int(state["drifts"], "drifts")


def _key(data: object) -> Key:
    return tuple(read_int(part, "key") for part in read_list(data, "key"))


def _log(seconds: float) -> float:
    if not (seconds > 0.0 and isfinite(seconds)):
        raise ForerunError(f"a phase of a round took {seconds} seconds: durations must be finite and above 0")
    return log(seconds)
