"""llama.cpp's adaptive depth for chained heads: climb slowly, step back at once."""

from __future__ import annotations

from typing import final

from forerun.errors import ForerunError
from forerun.horizons.context import RoundContext, RoundFeedback
from forerun.horizons.rivals.deterministic import DeterministicPolicy, all_accepted


@final
class Staircase(DeterministicPolicy):
    """Depth d becomes d + 1 after climb[d - 1] full rounds in a row, and max(1, d - 1) after any rejection.

    Args:
        climb: full rounds needed to leave depth 1, 2, ...; the last one serves all deeper depths. (1,) is the simple
            form: one up, one down.

    Raises:
        ForerunError: an entry below 1, or none.

    References:
        llama.cpp pull request 27210 (open): posted variant 2, 4, 10, 6, 4, 3, 2.
    """

    def __init__(self, *, climb: tuple[int, ...] = (2, 4, 10, 6, 4, 3, 2)) -> None:
        if not climb or min(climb) < 1:
            raise ForerunError(f"climb is {climb}: give at least one number of rounds, each 1 or more")
        self.climb = climb
        self._depth = 1
        self._full_rounds = 0

    @property
    def name(self) -> str:
        """`llama-staircase`, or with `-simple` where one full round is enough everywhere."""
        return "llama-staircase-simple" if max(self.climb) == 1 else "llama-staircase"

    def horizon_for(self, context: RoundContext) -> int:
        """The depth."""
        return self._depth

    def observe(self, feedback: RoundFeedback) -> None:
        """One step at most."""
        if all_accepted(feedback, self._depth):
            self._full_rounds += 1
            if self._full_rounds >= self.climb[min(self._depth, len(self.climb)) - 1]:
                self._depth, self._full_rounds = self._depth + 1, 0
        elif feedback.rejected_at is not None:
            self._depth, self._full_rounds = max(1, self._depth - 1), 0

    def clone(self) -> Staircase:
        """At depth 1."""
        return Staircase(climb=self.climb)
