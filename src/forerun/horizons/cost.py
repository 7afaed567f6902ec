"""Seconds per round by horizon: a profile to start with, kept up to date by the rounds that are run.

It knows horizons and durations; what drafting gains is not its business. Costs never affect the output law, only speed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import repeat
from math import exp, inf, isfinite, log
from statistics import median
from typing import final

from forerun.errors import ForerunError
from forerun.horizons.context import RoundFeedback
from forerun.horizons.cost_model import CostModel
from forerun.horizons.isotonic import fill_between, isotonic
from forerun.horizons.plain import check_keys, read_float, read_floats, read_int, read_list
from forerun.horizons.residuals import ResidualGate

FORMAT = "forerun-cost-table/1"
MOVES_BETWEEN_FITS = 8


@final
class CostTable(CostModel):
    """Seconds of a round with horizon k, for every k that was measured or lies between measured ones.

    A cell is the logarithm of seconds. log C(k) = level + cell(k): the level is common to all horizons and follows
    quickly what moves all rounds together (a busy machine, a growing context), so that a slow spell does not count
    against the horizon that happened to be in use; only ratios of costs decide horizons. A round with residual
    r = log(seconds) - level - cell(k) moves cell(k) by max(`cell_rate`, 1 / n) r, n the rounds seen at k, and the level
    by `level_rate` r.

    Outliers: a residual above 5 * 1.4826 times the median absolute residual of the last 32 is dropped and counted,
    unless it is the third in a row (then the machine has changed). A cell first appears with the median of its first
    `min_samples` rounds. Reading the table applies a non-decreasing fit (count-weighted, each cell's count capped at
    the memory of its running mean) and straight lines between measured neighbours. Nothing is extrapolated: horizons
    below the first and above the last measured one cost infinity.

    Args:
        cell_rate: alpha of the running mean of each cell (a plain mean until n exceeds 1 / alpha).
        level_rate: alpha of the common level; 0 makes the cells independent.
        min_samples: rounds before an unprofiled cell counts as measured.

    Raises:
        ForerunError: a rate outside (0, 1] (level: [0, 1)) or min_samples below 1.

    Example:
        >>> table = CostTable.from_profile([(0, 1.0), (0, 1.2), (0, 1.1), (4, 2.1)])
        >>> [round(seconds, 3) for seconds in table.seconds(5)]
        [1.1, 1.35, 1.6, 1.85, 2.1, inf]
    """

    def __init__(self, *, cell_rate: float = 0.05, level_rate: float = 0.2, min_samples: int = 3) -> None:
        if not (0.0 < cell_rate <= 1.0 and 0.0 <= level_rate < 1.0 and min_samples >= 1):
            raise ForerunError(
                "a cost table needs 0 < cell_rate <= 1, 0 <= level_rate < 1 and min_samples >= 1, got "
                f"{cell_rate}, {level_rate} and {min_samples}"
            )
        self.cell_rate = cell_rate
        self.level_rate = level_rate
        self.min_samples = min_samples
        self._level = 0.0
        self._cells: dict[int, float] = {}
        self._counts: dict[int, int] = {}
        self._pending: dict[int, list[float]] = {}
        self._gate = ResidualGate()
        self._curve: list[float] | None = None  # over the level; read anew when asked for
        self._rising = False  # the curve is the cells themselves, one for each horizon
        self._moves = 0  # since the curve was read

    @classmethod
    def from_profile(
        cls,
        profile: Iterable[tuple[int, float]],
        *,
        cell_rate: float = 0.05,
        level_rate: float = 0.2,
        min_samples: int = 3,
    ) -> CostTable:
        """A table from timed rounds (horizon, seconds): the median of each horizon, trusted from one sample on.

        Raises:
            ForerunError: an empty profile, a negative horizon or a duration that is not above 0.
        """
        table = cls(cell_rate=cell_rate, level_rate=level_rate, min_samples=min_samples)
        samples: dict[int, list[float]] = {}
        for horizon, seconds in profile:
            samples.setdefault(horizon, []).append(_log_seconds(horizon, seconds))
        if not samples:
            raise ForerunError("an empty profile makes no cost table: time at least horizon 0 and the largest horizon")
        for horizon, logs in samples.items():
            table._cells[horizon] = median(logs)
            table._counts[horizon] = len(logs)
        return table

    @property
    def measured(self) -> tuple[int, ...]:
        """The horizons with a measured cell, in order."""
        return tuple(sorted(self._cells))

    @property
    def outliers(self) -> int:
        """Number of rounds dropped as outliers."""
        return self._gate.outliers

    def seconds(
        self, limit: int, *, context_length: int = 0, batch_size: int = 1, drafted: bool = False
    ) -> tuple[float, ...]:
        """C(0), ..., C(limit); infinity where the table knows nothing. Context and batch are in the common level.

        Whole rounds are timed, so what was drafted before the horizon was chosen is in every one of them.
        """
        curve = self._curve
        if curve is None:
            curve = self._curve = self._read()
        level = exp(self._level)
        known = tuple([level * cell for cell in curve[: limit + 1]])
        return known + (inf,) * (limit + 1 - len(known))

    def observe_round(self, feedback: RoundFeedback) -> None:
        """`observe` with the tokens that were really drafted, of a tree its depth."""
        self._take_in(feedback.depth, log(feedback.seconds))

    def observe(self, horizon: int, seconds: float) -> None:
        """Take in one timed round.

        Raises:
            ForerunError: a negative horizon or a duration that is not above 0.
        """
        self._take_in(horizon, _log_seconds(horizon, seconds))

    def _take_in(self, horizon: int, log_seconds: float) -> None:
        value = log_seconds - self._level
        cell = self._cells.get(horizon)
        if cell is None:
            waiting = self._pending.setdefault(horizon, [])
            waiting.append(value)
            if len(waiting) >= self.min_samples:
                self._cells[horizon] = median(waiting)
                self._counts[horizon] = len(waiting)
                del self._pending[horizon]
                self._curve = None
            return
        residual = value - cell
        if not self._gate.admits(residual):
            return
        self._counts[horizon] = count = self._counts[horizon] + 1
        self._level += self.level_rate * residual
        self._cells[horizon] = cell + max(self.cell_rate, 1.0 / count) * residual
        self._move(horizon)

    def copy(self) -> CostTable:
        """An independent table with the same state."""
        return CostTable.from_state_dict(self.state_dict())

    def state_dict(self) -> dict[str, object]:
        """The whole table as plain data; horizons are list entries, so that it survives JSON."""
        self._curve = None  # a copy will read the curve anew, so this table does too and both go on alike
        return {
            "format": FORMAT,
            "cell_rate": self.cell_rate,
            "level_rate": self.level_rate,
            "min_samples": self.min_samples,
            "level": self._level,
            "cells": [
                {"horizon": horizon, "log_seconds": self._cells[horizon], "count": self._counts[horizon]}
                for horizon in sorted(self._cells)
            ],
            "pending": [
                {"horizon": horizon, "log_seconds": list(self._pending[horizon])} for horizon in sorted(self._pending)
            ],
            **self._gate.state_dict(),
        }

    @classmethod
    def from_state_dict(cls, data: object) -> CostTable:
        """The table that `state_dict` described.

        Raises:
            ForerunError: a key is missing, unknown or of the wrong kind, or the format is another one.
        """
        keys = ("format", "cell_rate", "level_rate", "min_samples", "level", "cells", "pending", "residuals")
        state = check_keys(data, (*keys, "outliers_in_row", "outliers"), "cost table")
        if state["format"] != FORMAT:
            raise ForerunError(f"cost table: format is {state['format']!r}, this version reads {FORMAT!r}")
        table = cls(
            cell_rate=read_float(state["cell_rate"], "cell_rate"),
            level_rate=read_float(state["level_rate"], "level_rate"),
            min_samples=read_int(state["min_samples"], "min_samples"),
        )
        table._level = read_float(state["level"], "level")
        for entry in read_list(state["cells"], "cells"):
            cell = check_keys(entry, ("horizon", "log_seconds", "count"), "cost table cell")
            horizon = read_int(cell["horizon"], "horizon")
            table._cells[horizon] = read_float(cell["log_seconds"], "log_seconds")
            table._counts[horizon] = max(1, read_int(cell["count"], "count"))
        for entry in read_list(state["pending"], "pending"):
            cell = check_keys(entry, ("horizon", "log_seconds"), "cost table pending cell")
            table._pending[read_int(cell["horizon"], "horizon")] = read_floats(cell["log_seconds"], "log_seconds")
        table._gate.load_state_dict({key: state[key] for key in ("residuals", "outliers_in_row", "outliers")})
        return table

    def to_json(self) -> str:
        """The table as a JSON text."""
        return json.dumps(self.state_dict(), indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> CostTable:
        """The table that `to_json` wrote.

        Raises:
            ForerunError: no JSON, or as for `from_state_dict`.
        """
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise ForerunError(f"cost table: not a JSON text ({error})") from error
        return cls.from_state_dict(data)

    def _read(self) -> list[float]:
        self._moves = 0
        memory = 2.0 / self.cell_rate - 1.0  # a running mean with rate alpha averages about 2 / alpha - 1 samples
        known = sorted(self._cells)
        values = [exp(self._cells[horizon]) for horizon in known]
        weights = list(map(min, map(self._counts.__getitem__, known), repeat(memory)))
        fitted = isotonic(values, weights)
        whole = bool(known) and known[-1] + 1 == len(known)
        self._rising = whole and fitted == values
        return fitted if whole else fill_between(dict(zip(known, fitted, strict=True)))

    def _move(self, horizon: int) -> None:
        """Keep the curve where a cell moved without passing its neighbours: reading anew costs ten times as much.

        Where cells stand in no order, the fit is made anew after 8 rounds: a cell moves by a twentieth of a residual.
        """
        curve = self._curve
        if curve is None:
            return
        self._moves += 1
        if self._rising:
            value = exp(self._cells[horizon])
            if (horizon and value < curve[horizon - 1]) or (horizon + 1 < len(curve) and value > curve[horizon + 1]):
                self._curve = None
            else:
                curve[horizon] = value
        elif self._moves >= MOVES_BETWEEN_FITS:
            self._curve = None


def _log_seconds(horizon: int, seconds: float) -> float:
    if horizon < 0:
        raise ForerunError(f"horizon {horizon} is negative")
    if not (seconds > 0.0 and isfinite(seconds)):
        raise ForerunError(f"horizon {horizon} took {seconds} seconds: durations must be finite and above 0")
    return log(seconds)
