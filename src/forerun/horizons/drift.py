"""A lasting change of level, told from noise (Page-Hinkley)."""

from __future__ import annotations

from typing import final

from forerun.horizons.plain import check_keys, read_floats

DELTA = 0.02
THRESHOLD = 1.0


@final
class PageHinkley:
    """Alarm when residuals have added up to more than 1 beyond 0.02 each, in one direction.

    Two running sums, one for each sign: up <- max(0, up + r - 0.02) and down <- max(0, down - r - 0.02).

    Example:
        >>> drift = PageHinkley()
        >>> [drift.observe(residual) for residual in (0.5, -0.4, 0.5, 0.5)]
        [False, False, False, True]
    """

    def __init__(self) -> None:
        self._up = 0.0
        self._down = 0.0

    def observe(self, residual: float) -> bool:
        """Take in a residual of log seconds; after an alarm the sums start anew."""
        self._up = max(0.0, self._up + residual - DELTA)
        self._down = max(0.0, self._down - residual - DELTA)
        if max(self._up, self._down) <= THRESHOLD:
            return False
        self._up = self._down = 0.0
        return True

    def state_dict(self) -> dict[str, object]:
        """The state as plain data."""
        return {"sums": [self._up, self._down]}

    def load_state_dict(self, data: object) -> None:
        """Take over a saved state.

        Raises:
            ForerunError: a key is missing, unknown or of the wrong kind.
        """
        self._up, self._down = read_floats(check_keys(data, ("sums",), "drift")["sums"], "sums")
