"""The schedule that transformers had first: two more after a full success, one less after a rejection."""

from __future__ import annotations

from typing import final

from forerun.errors import ForerunError
from forerun.horizons.context import RoundContext, RoundFeedback
from forerun.horizons.rivals.deterministic import DeterministicPolicy, all_accepted


@final
class HeuristicSchedule(DeterministicPolicy):
    """k + 2 if all k drafts stood, max(1, k - 1) after a rejection.

    Departure: a round that neither tried all of k nor saw a rejection changes nothing; the original takes one off.

    Args:
        start: horizon of the first round (the default where `heuristic` was one; newer releases start at 20, constant).
        transient: begin again with every answer (`heuristic_transient`) instead of going on (`heuristic`).

    Raises:
        ForerunError: the start is below 1.

    References:
        transformers, generation/candidate_generator.py, `num_assistant_tokens_schedule`.
    """

    def __init__(self, *, start: int = 5, transient: bool = False) -> None:
        if start < 1:
            raise ForerunError(f"start is {start}: give at least 1 token")
        self.start = start
        self.transient = transient
        self._horizon = start

    @property
    def name(self) -> str:
        """`heuristic` or `heuristic-transient`."""
        return "heuristic-transient" if self.transient else "heuristic"

    def horizon_for(self, context: RoundContext) -> int:
        """As it stands."""
        return self.start if self._begins(context) else self._horizon

    def observe(self, feedback: RoundFeedback) -> None:
        """Two up or one down."""
        self._horizon = self.horizon_for(feedback.context)
        if all_accepted(feedback, self._horizon):
            self._horizon += 2
        elif feedback.rejected_at is not None:
            self._horizon = max(1, self._horizon - 1)

    def clone(self) -> HeuristicSchedule:
        """From the start."""
        return HeuristicSchedule(start=self.start, transient=self.transient)

    def _begins(self, context: RoundContext) -> bool:
        return self.transient and context.generated <= 1  # the first token came with the prompt
