"""What may end a chain while it is being drawn; drafters ask, and know nothing of why."""

from __future__ import annotations

from abc import ABC, abstractmethod

from jaxtyping import Float
from torch import Tensor


class DraftStop(ABC):
    """Looks on while one chain is drawn. A drafter asks ``before`` and ``after`` for every token, in order."""

    @abstractmethod
    def before(self, logits: Float[Tensor, " vocab"], confidence: float | None) -> bool:
        """Whether the next token is to be drawn.

        Args:
            logits: of its position, before any processing; they make a law.
            confidence: log-odds that its draft is accepted, where the drafter predicts them.
        """

    @abstractmethod
    def after(self, token_id: int) -> bool:
        """Whether another token may follow the one just drawn, which stays in the draft."""

    @property
    @abstractmethod
    def submitted(self) -> int:
        """How many of the drawn tokens are handed over; all of them, unless tokens are to be dropped on purpose."""
