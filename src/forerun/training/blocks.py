"""From captured rows to training blocks: anchors are drawn, and inputs and labels laid out.

Which index is an input and which a label is said in `drafters.block_inputs`, for training and decoding alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from forerun.drafters import BlockInputs, slot_indices
from forerun.training.features import FeatureRow


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockBatch:
    """Anchored blocks of several rows, padded to one shape.

    Attributes:
        inputs: what the drafter may read; features of padding are zero and never visible.
        labels: token each slot predicts.
        final_hidden, log_normaliser: of the target, at the index that decides each label.
        valid: slots that have a label inside the answer.
    """

    inputs: BlockInputs
    labels: Int[Tensor, "rows blocks slots"]
    final_hidden: Float[Tensor, "rows blocks slots hidden"]
    log_normaliser: Float[Tensor, "rows blocks slots"]
    valid: Bool[Tensor, "rows blocks slots"]


def anchor_range(row: FeatureRow, *, first_slot: int = 0) -> range:
    """Indices that decoding can have as anchors: from the first answer token to the last but one of the row.

    Args:
        row: a prompt and its answer.
        first_slot: the first one that drafts; 1 where slot 0 says the token that the target writes after the anchor, so
            that a block may stand behind the prompt.
    """
    return range(row.prompt_length - first_slot, len(row.token_ids) - 1)


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
        chosen = choose_anchors(anchor_range(row), blocks, generator)
        anchors[index, : len(chosen)], used[index, : len(chosen)] = chosen, True
        features[index, :size] = row.features.float()
        token_ids[index, :size] = row.token_ids
        final_hidden[index, :size] = row.final_hidden.float()
        log_normaliser[index, :size] = row.log_normaliser
    found = slot_indices(anchors, used, lengths, slots=slots)
    flat, flat_labels = found.inputs.view(len(rows), -1), found.labels.view(len(rows), -1)
    shape = found.inputs.shape
    return BlockBatch(
        inputs=BlockInputs(
            token_ids=token_ids,
            features=features,
            anchors=anchors,
            previous=token_ids.gather(1, flat).view(shape),
        ),
        labels=token_ids.gather(1, flat_labels).view(shape),
        final_hidden=final_hidden.gather(1, flat[..., None].expand(-1, -1, hidden)).view(*shape, hidden),
        log_normaliser=log_normaliser.gather(1, flat).view(shape),
        valid=found.valid,
    )


def choose_anchors(candidates: range, blocks: int, generator: torch.Generator | None) -> Int[Tensor, " chosen"]:
    """At most ``blocks`` of the candidates in ascending order; evenly spaced without a generator."""
    count = min(blocks, len(candidates))
    if generator is None:
        picks = torch.linspace(0, max(len(candidates) - 1, 0), count).long().unique()
    else:
        picks = torch.randperm(len(candidates), generator=generator)[:count].sort().values
    chosen: Tensor = picks + candidates.start
    return chosen
