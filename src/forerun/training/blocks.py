"""From captured rows to training blocks: which token is an input, which a label, and who may see what.

The one place that counts positions. A block anchored at index a (a token that decoding would hold as its last
committed one) has slots 0 .. K-1; slot j stands at position a + j, reads token a + j as "the token before", predicts
token a + j + 1, and is compared with the target's law at index a + j. Features are visible strictly before a.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from forerun.training.features import FeatureRow


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockBatch:
    """Anchored blocks of several rows, padded to one shape.

    Attributes:
        features: of every token; padding is zero and never visible.
        anchors: index of each block's anchor; 0 for blocks that only fill the shape.
        previous: token before each slot's prediction.
        labels: token each slot predicts.
        final_hidden, log_normaliser: of the target, at the index that decides each label.
        valid: slots that have a label inside the answer.
        visible: for each slot (row-major over blocks), the context tokens and slots it may read.
    """

    features: Float[Tensor, "rows length layers hidden"]
    anchors: Int[Tensor, "rows blocks"]
    previous: Int[Tensor, "rows blocks slots"]
    labels: Int[Tensor, "rows blocks slots"]
    final_hidden: Float[Tensor, "rows blocks slots hidden"]
    log_normaliser: Float[Tensor, "rows blocks slots"]
    valid: Bool[Tensor, "rows blocks slots"]
    visible: Bool[Tensor, "rows queries keys"]


def anchor_range(row: FeatureRow) -> range:
    """Indices that decoding can have as anchors: from the first answer token to the last but one of the row."""
    return range(row.prompt_length, len(row.token_ids) - 1)


def make_batch(rows: list[FeatureRow], *, blocks: int, slots: int, generator: torch.Generator | None) -> BlockBatch:
    """Sample anchors in every row and lay the blocks out.

    Args:
        rows: at least one.
        blocks: anchors per row at most.
        slots: positions per block.
        generator: draws the anchors without replacement; ``None`` takes them evenly spaced (validation).
    """
    length = max(len(row.token_ids) for row in rows)
    hidden = rows[0].final_hidden.shape[-1]
    anchors = torch.zeros(len(rows), blocks, dtype=torch.int64)
    used = torch.zeros(len(rows), blocks, dtype=torch.bool)
    features = torch.zeros(len(rows), length, *rows[0].features.shape[1:])
    token_ids = torch.zeros(len(rows), length, dtype=torch.int64)
    final_hidden = torch.zeros(len(rows), length, hidden)
    log_normaliser = torch.zeros(len(rows), length)
    lengths = torch.tensor([len(row.token_ids) for row in rows])
    for index, row in enumerate(rows):
        size = len(row.token_ids)
        chosen = _choose(anchor_range(row), blocks, generator)
        anchors[index, : len(chosen)], used[index, : len(chosen)] = chosen, True
        features[index, :size] = row.features.float()
        token_ids[index, :size] = row.token_ids
        final_hidden[index, :size] = row.final_hidden.float()
        log_normaliser[index, :size] = row.log_normaliser
    before = anchors[:, :, None] + torch.arange(
        slots
    )  # (rows, blocks, slots): index of the token before the prediction
    valid = (before + 1 < lengths[:, None, None]) & used[:, :, None]
    before = before.clamp(max=length - 2)
    flat = before.view(len(rows), -1)
    return BlockBatch(
        features=features,
        anchors=anchors,
        previous=token_ids.gather(1, flat).view_as(before),
        labels=token_ids.gather(1, flat + 1).view_as(before),
        final_hidden=final_hidden.gather(1, flat[..., None].expand(-1, -1, hidden)).view(*before.shape, hidden),
        log_normaliser=log_normaliser.gather(1, flat).view_as(before),
        valid=valid,
        visible=block_visibility(anchors, length=length, slots=slots),
    )


def block_visibility(
    anchors: Int[Tensor, "rows blocks"], *, length: int, slots: int
) -> Bool[Tensor, "rows queries keys"]:
    """A slot reads the context strictly before its anchor, and every slot of its own block."""
    rows, blocks = anchors.shape
    context = torch.arange(length) < anchors[:, :, None]  # (rows, blocks, length)
    context = context.repeat_interleave(slots, dim=1)  # (rows, queries, length)
    owner = torch.arange(blocks).repeat_interleave(slots)
    own_block = (owner[:, None] == owner).expand(rows, -1, -1)  # (rows, queries, queries)
    return torch.cat([context, own_block], dim=2)


def _choose(candidates: range, blocks: int, generator: torch.Generator | None) -> Int[Tensor, " chosen"]:
    count = min(blocks, len(candidates))
    if generator is None:
        picks = torch.linspace(0, max(len(candidates) - 1, 0), count).long().unique()
    else:
        picks = torch.randperm(len(candidates), generator=generator)[:count].sort().values
    chosen: Tensor = picks + candidates.start
    return chosen
