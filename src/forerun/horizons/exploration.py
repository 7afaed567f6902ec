"""The exploration coin: what it does to the horizon, to the propensities and to the size of the sample.

With probability epsilon the limit is drafted instead of the planned horizon. The coin is drawn before drafting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from forerun.errors import ForerunError
from forerun.horizons.evidence import Evidence
from forerun.horizons.plain import check_keys, read_floats


def explores(uniform: float, epsilon: float) -> bool:
    """The coin: uniform < epsilon.

    Raises:
        ForerunError: `uniform` is outside [0, 1).
    """
    if not 0.0 <= uniform < 1.0:
        raise ForerunError(f"uniform is {uniform}: give one draw from [0, 1)")
    return uniform < epsilon


def propensities(planned: int, limit: int, epsilon: float) -> tuple[float, ...]:
    """P(position j is drafted), j = 1..limit: 1 up to the planned horizon, epsilon beyond.

    Their sum is the expected horizon, planned + epsilon (limit - planned).

    References:
        AMTP, exploration with inverse-probability weighting.
    """
    return (1.0,) * planned + (epsilon,) * (limit - planned)


@final
class EffectiveSampleSize:
    """Kish's effective number of rounds behind each position's hazard: (sum of v)^2 / sum of v^2.

    v is importance times prefix weight. A few rounds with weight 1 / epsilon count for few.
    """

    def __init__(self) -> None:
        self._sums: list[float] = []
        self._squares: list[float] = []

    def observe(self, evidence: Sequence[Evidence]) -> None:
        """Take in a round's evidence."""
        for index, item in enumerate(evidence):
            if index == len(self._sums):
                self._sums.append(0.0)
                self._squares.append(0.0)
            value = item.importance * item.weight
            self._sums[index] += value
            self._squares[index] += value * value

    @property
    def sizes(self) -> tuple[float, ...]:
        """Effective number of rounds for each position seen so far."""
        return tuple(
            total * total / squares if squares > 0.0 else 0.0
            for total, squares in zip(self._sums, self._squares, strict=True)
        )

    def state_dict(self) -> dict[str, object]:
        """The state as plain data."""
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
