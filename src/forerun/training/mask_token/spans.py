"""Many spans of masks packed into one pass per row, each as if it were the only one.

Behind a row's tokens stand its blocks. A block repeats its anchor and goes on with masks (for the student) or with the
tokens that the student proposed (for the teacher), in the places after the anchor. Its tokens see the row strictly
before the anchor and what comes earlier in their own block; no token of the row sees a block. So slot 0, the repeated
anchor, computes what the anchor itself computes, and all wanted rows stand last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from forerun.drafters import slot_indices
from forerun.models import TransformersTarget
from forerun.training.blocks import anchor_range, choose_anchors
from forerun.training.features import FeatureRow


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spans:
    """Blocks of several rows, padded to one shape.

    Attributes:
        token_ids: of the rows.
        anchors: index of each block's anchor; 0 for blocks that only fill the shape.
        used: blocks that do more.
        previous: the text's token before each slot's prediction; that of slot 0 is the anchor.
        labels: the text's token that each slot predicts.
        valid: slots that have a label.
    """

    token_ids: Int[Tensor, "rows length"]
    anchors: Int[Tensor, "rows blocks"]
    used: Bool[Tensor, "rows blocks"]
    previous: Int[Tensor, "rows blocks slots"]
    labels: Int[Tensor, "rows blocks slots"]
    valid: Bool[Tensor, "rows blocks slots"]

    @classmethod
    def of(
        cls,
        rows: list[FeatureRow],
        *,
        blocks: int,
        slots: int,
        generator: torch.Generator | None,
        first_slot: int = 0,
    ) -> Spans:
        """Sample anchors in every row.

        Args:
            rows: at least one.
            blocks: anchors per row at most.
            slots: predicted tokens of a block.
            generator: draws the anchors without replacement; ``None`` takes them evenly spaced.
            first_slot: the first one that drafts, see `anchor_range`.
        """
        lengths = torch.tensor([len(row.token_ids) for row in rows])
        token_ids = torch.zeros(len(rows), int(lengths.max()), dtype=torch.int64)
        anchors = torch.zeros(len(rows), blocks, dtype=torch.int64)
        used = torch.zeros(len(rows), blocks, dtype=torch.bool)
        for index, row in enumerate(rows):
            token_ids[index, : len(row.token_ids)] = row.token_ids
            chosen = choose_anchors(anchor_range(row, first_slot=first_slot), blocks, generator)
            anchors[index, : len(chosen)], used[index, : len(chosen)] = chosen, True
        found = slot_indices(anchors, used, lengths, slots=slots)

        def gathered(indices: Int[Tensor, "rows blocks slots"]) -> Int[Tensor, "rows blocks slots"]:
            return token_ids.gather(1, indices.flatten(1)).view(indices.shape)

        return cls(
            token_ids=token_ids,
            anchors=anchors,
            used=used,
            previous=gathered(found.inputs),
            labels=gathered(found.labels),
            valid=found.valid,
        )

    def logits(
        self, model: TransformersTarget, later: int | Int[Tensor, "rows blocks later"]
    ) -> Float[Tensor, "rows blocks slots vocab"]:
        """What a model says at every slot.

        Args:
            model: reads the rows and blocks in one pass.
            later: tokens of a block after its anchor; one id stands for itself in all places.
        """
        rows, blocks, slots = self.previous.shape
        block_ids = self.previous.clone()
        block_ids[:, :, 1:] = later
        length = self.token_ids.shape[1]
        token_ids = torch.cat([self.token_ids, block_ids.flatten(1)], dim=1)
        block_positions = (self.anchors[:, :, None] + torch.arange(slots)).flatten(1)
        positions = torch.cat([torch.arange(length).expand(rows, -1), block_positions], dim=1)
        last = int(model.max_positions) - 1  # a slot without a label may stand beyond; it means nothing
        device = model.device
        found = model.forward_visible(
            token_ids.to(device),
            positions.clamp(max=last).to(device),
            self._visible().to(device),
            num_logits=blocks * slots,
        )
        return found.view(rows, blocks, slots, -1)

    def _visible(self) -> Bool[Tensor, "rows width width"]:
        rows, blocks, slots = self.previous.shape
        length = self.token_ids.shape[1]
        visible = torch.zeros(rows, length + blocks * slots, length + blocks * slots, dtype=torch.bool)
        visible[:, :length, :length] = torch.ones(length, length, dtype=torch.bool).tril()
        before = torch.arange(length) < self.anchors[:, :, None]  # (rows, blocks, length)
        visible[:, length:, :length] = before.repeat_interleave(slots, dim=1)
        own = torch.ones(slots, slots, dtype=torch.bool).tril()
        visible[:, length:, length:] = torch.block_diag(*[own] * blocks).bool()
        return visible
