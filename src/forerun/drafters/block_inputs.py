"""Which token is an input, which a label: the one place that counts positions, for every drafter and depth.

A block anchored at index a (a token that decoding would hold as its last committed one, not yet processed by the
target) has slots 0 .. K-1. Slot j reads token a + j as "the token before", predicts token a + j + 1, and is compared
with the target's law at index a + j. The target's features are there strictly before a. Medusa's head i, step i of a
chained drafter and slot i of a parallel block are all slot i here: from the state at index a - 1 they predict token
(a - 1) + i + 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SlotIndices:
    """For each slot of each block.

    Attributes:
        inputs: index of the token before the prediction, which is also the index of the target's law for it.
        labels: index of the predicted token.
        valid: the label exists.
    """

    inputs: Int[Tensor, "rows blocks slots"]
    labels: Int[Tensor, "rows blocks slots"]
    valid: Bool[Tensor, "rows blocks slots"]


def slot_indices(
    anchors: Int[Tensor, "rows blocks"], used: Bool[Tensor, "rows blocks"], lengths: Int[Tensor, " rows"], *, slots: int
) -> SlotIndices:
    """Indices of inputs and labels; those of slots without a label are clamped to the row and mean nothing.

    Args:
        anchors: index of each block's anchor.
        used: blocks that are more than filling of the shape.
        lengths: tokens of each row.
        slots: of a block.

    Example:
        >>> import torch
        >>> found = slot_indices(torch.tensor([[2]]), torch.tensor([[True]]), torch.tensor([5]), slots=3)
        >>> found.inputs.tolist(), found.labels.tolist(), found.valid.tolist()
        ([[[2, 3, 3]]], [[[3, 4, 4]]], [[[True, True, False]]])
    """
    inputs = anchors[:, :, None] + torch.arange(slots, device=anchors.device)
    last = lengths[:, None, None] - 1
    valid = (inputs < last) & used[:, :, None]
    inputs = torch.minimum(inputs, last - 1)
    return SlotIndices(inputs=inputs, labels=inputs + 1, valid=valid)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockInputs:
    """Teacher-forced blocks of several rows, padded to one shape: all that a drafter may read of them.

    Attributes:
        token_ids: of the rows; a slot may read those up to its own ``previous``.
        features: of every token; a block may read those strictly before its anchor.
        anchors: index of each block's anchor; 0 for blocks that only fill the shape.
        previous: token before each slot's prediction; that of slot 0 is the anchor.
    """

    token_ids: Int[Tensor, "rows length"]
    features: Float[Tensor, "rows length layers hidden"]
    anchors: Int[Tensor, "rows blocks"]
    previous: Int[Tensor, "rows blocks slots"]

    @property
    def slots(self) -> int:
        """Of a block."""
        return self.previous.shape[2]

    @property
    def length(self) -> int:
        """Of the padded rows."""
        return self.token_ids.shape[1]

    @property
    def before_anchors(self) -> Int[Tensor, "rows blocks"]:
        """Index of the last token that the target has processed; 0 for blocks that only fill the shape."""
        return (self.anchors - 1).clamp(min=0)
