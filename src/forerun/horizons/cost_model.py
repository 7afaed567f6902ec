"""What a horizon policy asks of anything that knows what rounds cost. Costs never affect the output law, only speed."""

from __future__ import annotations

from abc import ABC, abstractmethod

from forerun.horizons.context import RoundFeedback


class CostModel(ABC):
    """Seconds of a round by horizon, kept up to date by the rounds that are run."""

    @property
    @abstractmethod
    def measured(self) -> tuple[int, ...]:
        """Horizons whose cost was measured, in order."""

    @property
    @abstractmethod
    def outliers(self) -> int:
        """Number of rounds dropped as outliers."""

    @abstractmethod
    def seconds(
        self, limit: int, *, context_length: int = 0, batch_size: int = 1, drafted: bool = False
    ) -> tuple[float, ...]:
        """C(0), ..., C(limit) of one request's round; infinity where nothing is known.

        Args:
            limit: largest horizon asked for.
            context_length: committed tokens of the request.
            batch_size: requests in the pass; the others are taken to have the same horizon.
            drafted: the whole limit is drafted before the horizon is chosen, so that its cost is sunk: a part of every
                C(k), of C(0) too.
        """

    @abstractmethod
    def observe_round(self, feedback: RoundFeedback) -> None:
        """Take in one timed round."""

    @abstractmethod
    def copy(self) -> CostModel:
        """An independent model with the same state."""

    @abstractmethod
    def state_dict(self) -> dict[str, object]:
        """The whole model as plain data that survives JSON."""

    @classmethod
    @abstractmethod
    def from_state_dict(cls, data: object) -> CostModel:
        """The model that `state_dict` described.

        Raises:
            ForerunError: a key is missing, unknown or of the wrong kind, or the format is another one.
        """
