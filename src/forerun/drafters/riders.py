"""What the engine asks of a drafter whose drafts come out of the target's own passes.

Such a drafter has the target read a few tokens more in every verification: riders. They see the verified tokens and are
seen by none of them, so the rows that decide what is emitted stay what they are, and no rider stays in the cache. What
the target says about the riders behind the last token that stands is the next round's draft.

How many riders go along is settled before the pass, so the next round's horizon can be chosen freely up to that
number without looking at anything it must not look at.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from forerun.drafters.drafter import DrafterSession


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Riders:
    """Tokens that the target reads behind those of a chain.

    Attributes:
        token_ids: of the riders, those behind the first token of the chain first; the target must know them.
        parents: for each rider the token before it, as an index into the chain followed by the riders.
        counts: how many riders stand behind each token of the chain.
    """

    token_ids: Int[Tensor, " riders"]
    parents: tuple[int, ...]
    counts: tuple[int, ...]

    @classmethod
    def spans(cls, token_id: int, counts: Sequence[int]) -> Riders:
        """The same token, one after the other, ``counts[i]`` times behind token i of the chain.

        Example:
            >>> Riders.spans(9, [2, 1]).parents
            (0, 2, 1)
        """
        parents: list[int] = []
        for token, count in enumerate(counts):
            start = len(counts) + len(parents)
            parents += [token if place == 0 else start + place - 1 for place in range(count)]
        return cls(token_ids=torch.full((len(parents),), token_id), parents=tuple(parents), counts=tuple(counts))

    def behind(self, token_ids: Int[Tensor, " length"]) -> tuple[Int[Tensor, " block"], tuple[int, ...] | None]:
        """Tokens and parents (see ``Block``) of a pass over tokens that end with the chain.

        Example:
            >>> Riders.spans(9, [2, 1]).behind(torch.tensor([5, 6, 7]))
            (tensor([5, 6, 7, 9, 9, 9]), (-1, 0, 1, 1, 3, 2))
        """
        before = len(token_ids) - len(self.counts)
        parents = (*range(-1, len(token_ids) - 1), *(parent + before for parent in self.parents))
        is_chain = parents == tuple(range(-1, len(parents) - 1))
        return torch.cat([token_ids, self.token_ids.to(token_ids.device)]), None if is_chain else parents


class RidingSession(DrafterSession):
    """State for one request of a drafter that lives on riders."""

    @property
    @abstractmethod
    def ready(self) -> int:
        """Most tokens that it can draft now: the engine's limit for the horizon."""

    @abstractmethod
    def board(self, room: Sequence[int]) -> Riders:
        """Riders for the coming pass over a chain of tokens: the last committed one, then the drafts.

        Args:
            room: for each token of the chain the most tokens that the next round could draft if this one is the last
                that stands. A rider behind token i, in the place of the n-th token after it, needs a room of n.
        """

    @abstractmethod
    def arrive(self, logits: Float[Tensor, "riders vocab"]) -> None:
        """Take in what the target said about the riders behind the last token that stands, one row for each."""
