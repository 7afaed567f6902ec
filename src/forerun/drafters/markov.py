"""What the token just before adds to a slot: DSpark's three heads (arXiv 2607.05147, section 3).

With e = W1[token before], h the slot's hidden state and s the state carried through the block (zero at its start):

    vanilla   W2 e
    gated     W2 (sigmoid(G [h; e]) * e)
    rnn       [g; c; o] = J [s; e; h],   s' = sigmoid(g) * s + (1 - sigmoid(g)) * tanh(c),   W2 tanh(o)

Each gives states for W2, which is a matrix of the network's ``head_weights``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

MarkovKind = Literal["vanilla", "gated", "rnn"]


class MarkovHead(nn.Module, ABC):
    """From (carried state, embedding of the token before, hidden state) to the next state and what W2 reads."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank

    @abstractmethod
    def step(
        self, carried: Float[Tensor, "*batch rank"], before: Float[Tensor, "*batch rank"], hidden: Tensor
    ) -> tuple[Float[Tensor, "*batch rank"], Float[Tensor, "*batch rank"]]:
        """One slot.

        Args:
            carried: state after the slots before; zeros at the first.
            before: embedding of the token before.
            hidden: of the slot, (*batch, hidden).

        Returns:
            The state to carry on, and the states for W2.
        """

    def run(
        self, before: Float[Tensor, "*batch slots rank"], hidden: Float[Tensor, "*batch slots hidden"]
    ) -> Float[Tensor, "*batch slots rank"]:
        """All slots of known blocks, in order."""
        carried = torch.zeros_like(before[..., 0, :])
        states = []
        for slot in range(before.shape[-2]):
            carried, state = self.step(carried, before[..., slot, :], hidden[..., slot, :])
            states.append(state)
        return torch.stack(states, dim=-2)


@final
class VanillaMarkov(MarkovHead):
    """The embedding itself."""

    def step(self, carried: Tensor, before: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """See :class:`MarkovHead`."""
        return carried, before

    def run(self, before: Tensor, hidden: Tensor) -> Tensor:
        """No slot waits for another."""
        return before


@final
class GatedMarkov(MarkovHead):
    """The embedding behind a gate that the slot opens.

    Args:
        rank: of the embedding.
        hidden_size: of a slot.
    """

    def __init__(self, rank: int, hidden_size: int) -> None:
        super().__init__(rank)
        self.gate = nn.Linear(hidden_size + rank, rank)

    def step(self, carried: Tensor, before: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """See :class:`MarkovHead`."""
        return carried, torch.sigmoid(self.gate(torch.cat([hidden, before], dim=-1))) * before

    def run(self, before: Tensor, hidden: Tensor) -> Tensor:
        """No slot waits for another."""
        return self.step(before, before, hidden)[1]


@final
class RecurrentMarkov(MarkovHead):
    """A gated state through the block: a draft depends on all drafts before it.

    Args:
        rank: of embedding and state.
        hidden_size: of a slot.
    """

    def __init__(self, rank: int, hidden_size: int) -> None:
        super().__init__(rank)
        self.joint = nn.Linear(2 * rank + hidden_size, 3 * rank)

    def step(self, carried: Tensor, before: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """See :class:`MarkovHead`."""
        gate, candidate, output = self.joint(torch.cat([carried, before, hidden], dim=-1)).chunk(3, dim=-1)
        kept = torch.sigmoid(gate)
        return kept * carried + (1 - kept) * torch.tanh(candidate), torch.tanh(output)


def markov_head(kind: MarkovKind, rank: int, hidden_size: int) -> MarkovHead:
    """The head of this kind."""
    if kind == "vanilla":
        return VanillaMarkov(rank)
    return GatedMarkov(rank, hidden_size) if kind == "gated" else RecurrentMarkov(rank, hidden_size)
