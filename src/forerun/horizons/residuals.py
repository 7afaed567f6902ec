"""Which timed rounds are outliers: far from what was expected, and not the third such in a row."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from typing import final

from forerun.horizons.plain import check_keys, read_floats, read_int

KEPT = 32
NEEDED = 8
OUTLIER_MADS = 5.0 * 1.4826
MAD_MIN = 0.01
BELIEVED = 3


@final
class ResidualGate:
    """A residual above 5 * 1.4826 times the median absolute residual of the last 32 is no news, unless it persists.

    The third outlier in a row is let through: then the machine has changed.

    Attributes:
        outliers: residuals refused.
    """

    def __init__(self) -> None:
        self.outliers = 0
        self._kept: deque[float] = deque()
        self._sorted: list[float] = []
        self._in_row = 0

    def admits(self, residual: float) -> bool:
        """Whether the residual (in log time) is to be learned from; it is remembered then."""
        size = abs(residual)
        ranked = self._sorted
        count = len(ranked)
        if count >= NEEDED:
            # The middle is looked at only where it can matter.
            if size > OUTLIER_MADS * MAD_MIN and size > OUTLIER_MADS * _middle(ranked):
                self._in_row += 1
                if self._in_row < BELIEVED:
                    self.outliers += 1
                    return False
            else:
                self._in_row = 0
        if count == KEPT:
            del ranked[bisect_left(ranked, self._kept.popleft())]
        self._kept.append(size)
        insort(ranked, size)
        return True

    def state_dict(self) -> dict[str, object]:
        """The state as plain data."""
        return {"residuals": list(self._kept), "outliers_in_row": self._in_row, "outliers": self.outliers}

    def load_state_dict(self, data: object) -> None:
        """Take over a saved state.

        Raises:
            ForerunError: a key is missing, unknown or of the wrong kind.
        """
        state = check_keys(data, ("residuals", "outliers_in_row", "outliers"), "residuals")
        kept = read_floats(state["residuals"], "residuals")[-KEPT:]
        self._kept, self._sorted = deque(kept), sorted(kept)
        self._in_row = read_int(state["outliers_in_row"], "outliers_in_row")
        self.outliers = read_int(state["outliers"], "outliers")


def _middle(ranked: list[float]) -> float:
    count = len(ranked)
    return ranked[count // 2] if count % 2 else 0.5 * (ranked[count // 2 - 1] + ranked[count // 2])
