"""Rules that end a draft while it is being drawn, as plain values that a policy puts into its choice.

A rule sees numbers about draft laws, never tokens or tensors, and keeps no state: the same draft gets the same answers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DraftStatistics:
    """A draft law before its token is drawn: the drafter's own, at temperature 1, so that greedy drafting has it too.

    Attributes:
        entropy: nats.
        top_prob: largest probability.
        margin: largest minus second largest probability.
        confidence: the drafter's prediction that its draft is accepted, a probability; None where it predicts none.
    """

    entropy: float
    top_prob: float
    margin: float
    confidence: float | None = None


@final
@dataclass(frozen=True, slots=True)
class DrawnToken:
    """One drawn draft token.

    Attributes:
        law: what its law looked like before.
        prob: of the token under that law.
    """

    law: DraftStatistics
    prob: float


class StopRule(ABC):
    """Two questions for every position of a draft.

    Stopping keeps all tokens drawn so far, so it is exact: whether position j is drawn depends on the tokens before j
    and on position j's law, never on token j. Implementations are frozen dataclasses: a choice that carries one can be
    compared and written down.
    """

    @property
    def exact(self) -> bool:
        """Whether no token is dropped after it was looked at; only negative controls say no."""
        return True

    @abstractmethod
    def draws(self, drawn: Sequence[DrawnToken], law: DraftStatistics) -> bool:
        """Whether the next token is drawn.

        Args:
            drawn: the draft so far.
            law: of the token in question.
        """

    @abstractmethod
    def continues(self, drawn: Sequence[DrawnToken]) -> bool:
        """Whether another token may follow; all of `drawn` stays either way.

        Args:
            drawn: the draft so far, with the token just drawn.
        """

    def submits(self, drawn: Sequence[DrawnToken]) -> int:
        """How many tokens of the finished draft are verified: all. Rules with `exact` False may answer less."""
        return len(drawn)
