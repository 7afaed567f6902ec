"""Networks whose slots have nothing to do with each other: heads beside heads on what the target computed.

Each slot's states are a function of the target's features alone, so training can take the slots one after another and
keep one head's graph at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from forerun.drafters.block_inputs import BlockInputs
from forerun.drafters.declarations import Dependence, Saving
from forerun.drafters.network import Borrowed, DraftNetwork, DraftStates, Head, KnownBlock


class IndependentNetwork(DraftNetwork, ABC):
    """One head for each slot; a shorter horizon computes fewer of them."""

    dependence = Dependence.NONE
    prefix_consistent = True
    saving = Saving.BOTH

    @property
    def own_heads(self) -> bool:
        """`DraftStates.own_heads`."""
        return False

    @abstractmethod
    def slot_states(self, inputs: BlockInputs, borrowed: Borrowed, slot: int) -> Float[Tensor, "rows blocks width"]:
        """States of one slot in all blocks."""

    def teach(self, inputs: BlockInputs, borrowed: Borrowed) -> DraftStates:
        """See :class:`DraftNetwork`."""
        return self._together([self.slot_states(inputs, borrowed, slot) for slot in range(inputs.slots)])

    def teach_one_by_one(self, inputs: BlockInputs, borrowed: Borrowed) -> DraftStates:
        """The same states, for a backward pass that holds one head's graph at a time.

        A head's forward pass is repeated when its gradient is due, and its graph is gone before the next head's turn.
        Unlike a loop of losses, head by head, this leaves the objective free to look at whole blocks.
        """
        states: list[Tensor] = [
            checkpoint(self.slot_states, inputs, borrowed, slot, use_reentrant=False, preserve_rng_state=False)
            for slot in range(inputs.slots)
        ]
        return self._together(states)

    def known_block(self, states: Float[Tensor, "slots width"], heads: Sequence[Head]) -> KnownBlock:
        """The block of one anchor, from the states of its first slots."""
        used = heads[: len(states)] if self.own_heads else heads
        return KnownBlock(self._draft_states(states[None, None]).logits(used)[0, 0])

    def _together(self, states: list[Tensor]) -> DraftStates:
        return self._draft_states(torch.stack(states, dim=2))

    def _draft_states(self, states: Tensor) -> DraftStates:
        return DraftStates(terms=(states,), own_heads=self.own_heads)
