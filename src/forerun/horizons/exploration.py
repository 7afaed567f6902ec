"""The exploration coin: what it does to the horizon, to the propensities and to the size of the sample.

With probability epsilon the limit is drafted instead of the planned horizon; slots that a padded verification has
anyway may be filled besides. The coin is drawn before drafting.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from enum import Enum
from itertools import zip_longest
from operator import mul
from typing import final

from forerun.errors import ForerunError
from forerun.horizons.evidence import Evidence
from forerun.horizons.plain import check_keys, read_floats

WAITING_MAX = 64


class Schedule(Enum):
    """How the exploration rate moves."""

    CONSTANT = "constant"
    """Epsilon in every round: keeps up with drift for ever."""
    ANYTIME = "t^-1/5"
    """Epsilon * t^-1/5 in round t: the rate of the regret bound with partial feedback, without a known end."""

    def rate(self, epsilon: float, rounds: int) -> float:
        """The rate of the round after `rounds` others."""
        return epsilon if self is Schedule.CONSTANT else epsilon * (rounds + 1) ** -0.2


def explored_horizon(
    planned: int, limit: int, uniform: float, *, epsilon: float, padded: int = 0, pad_rate: float = 0.0
) -> int:
    """What one coin makes of a plan: the limit, the padded horizon, or the plan itself.

    The limit where uniform < epsilon; the padded horizon where uniform < epsilon + (1 - epsilon) * pad_rate.

    Raises:
        ForerunError: `uniform` is outside [0, 1).
    """
    if not 0.0 <= uniform < 1.0:
        raise ForerunError(f"uniform is {uniform}: give one draw from [0, 1)")
    if uniform < epsilon:
        return limit
    return max(planned, padded) if uniform < epsilon + (1.0 - epsilon) * pad_rate else planned


def padded_horizon(planned: int, limit: int, pad_widths: Sequence[int]) -> int:
    """The largest horizon whose verification is padded to the same width as the planned one's.

    A pass of planned + 1 tokens runs at the next of the widths; beyond the largest one nothing is padded.

    Args:
        planned: the horizon of the plan.
        limit: largest horizon allowed.
        pad_widths: widths in tokens that passes are padded to, rising.

    Example:
        >>> [padded_horizon(planned, 7, (1, 2, 4, 8, 16)) for planned in (0, 1, 2, 3, 4)]
        [0, 1, 3, 3, 7]
    """
    index = bisect_left(pad_widths, planned + 1)
    return planned if index == len(pad_widths) else max(planned, min(limit, pad_widths[index] - 1))


def propensities(
    planned: int, limit: int, epsilon: float, *, padded: int = 0, pad_rate: float = 0.0
) -> tuple[float, ...]:
    """P(position j is drafted), j = 1..limit: 1 up to the plan, then the pads' probability, epsilon beyond.

    Without pads their sum is the expected horizon, planned + epsilon (limit - planned).

    References:
        AMTP, exploration with inverse-probability weighting.
    """
    if pad_rate == 0.0 or padded <= planned:
        return (1.0,) * planned + (epsilon,) * (limit - planned)
    filled = epsilon + (1.0 - epsilon) * pad_rate
    return (1.0,) * planned + (filled,) * (padded - planned) + (epsilon,) * (limit - padded)


@final
class EffectiveSampleSize:
    """Kish's effective number of rounds behind each position's hazard: (sum of v)^2 / sum of v^2.

    v is importance times prefix weight. A few rounds with weight 1 / epsilon count for few. Rounds wait until they are
    added up together, one position after the other: half the work, and nobody asks between rounds.
    """

    def __init__(self) -> None:
        self._sums: list[float] = []
        self._squares: list[float] = []
        self._waiting: list[list[float]] = []

    def observe(self, evidence: Evidence) -> None:
        """Take in a round's evidence."""
        self._waiting.append(evidence.factors)
        if len(self._waiting) == WAITING_MAX:
            self._add_up()

    def _add_up(self) -> None:
        columns = list(zip_longest(*self._waiting, fillvalue=0.0))
        missing = [0.0] * (len(columns) - len(self._sums))
        self._sums += missing
        self._squares += missing
        for index, column in enumerate(columns):
            self._sums[index] = sum(column, self._sums[index])
            self._squares[index] = sum(map(mul, column, column), self._squares[index])
        self._waiting.clear()

    @property
    def sizes(self) -> tuple[float, ...]:
        """Effective number of rounds for each position seen so far."""
        self._add_up()
        return tuple(
            total * total / squares if squares > 0.0 else 0.0
            for total, squares in zip(self._sums, self._squares, strict=True)
        )

    def state_dict(self) -> dict[str, object]:
        """The state as plain data."""
        self._add_up()
        return {"sums": list(self._sums), "squares": list(self._squares)}

    def load_state_dict(self, data: object) -> None:
        """Take over a saved state.

        Raises:
            ForerunError: wrong keys or kinds, or lists of different lengths.
        """
        state = check_keys(data, ("sums", "squares"), "effective sample size")
        sums, squares = read_floats(state["sums"], "sums"), read_floats(state["squares"], "squares")
        if len(sums) != len(squares):
            raise ForerunError(f"effective sample size: {len(sums)} sums but {len(squares)} squares")
        self._sums, self._squares = sums, squares
        self._waiting.clear()
