"""Blocks of several sequences as one rectangle of tokens, padded on the right.

Padding is harmless: it is written to slots past its row's end, where no other token of the pass looks and the row's
next tokens overwrite it. Rows of the batch that stand between the pass's rows and have no block are padding throughout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from forerun.models.attention_masks import ancestry, chain_mask, tree_mask, window_mask
from forerun.models.batch_cache import Window

_PADDING_ID = 0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RowBlock:
    """What one row brings to a pass; no tokens for a row that only stands between others.

    Attributes:
        start: tokens the row holds already.
        token_ids: the new ones.
        parents: see :class:`forerun.models.target.Block`.
    """

    start: int
    token_ids: Int[Tensor, " length"]
    parents: tuple[int, ...] | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Rectangle:
    """The tensors of one pass.

    Attributes:
        token_ids: padded.
        positions: of every token in its sequence; one row where all rows agree.
        widths: tokens of each row that are not padding.
        window: where keys and values go.
        slots: of every token, or ``None`` where plain causal attention over all rows is meant, without padding.
        ancestors: who stands before whom inside the block; ``None`` if all rows are chains.
        extra_ids: tokens outside the vocabulary that stand in it, each once.
    """

    token_ids: Int[Tensor, "rows width"]
    positions: Int[Tensor, "position_rows width"]
    widths: tuple[int, ...]
    window: Window
    slots: Int[Tensor, "rows width"] | None
    ancestors: Bool[Tensor, "rows width width"] | None
    extra_ids: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        blocks: Sequence[RowBlock],
        *,
        first_row: int,
        device: torch.device,
        num_slots: int | None = None,
        extra_ids: tuple[int, ...] = (),
    ) -> Rectangle:
        """Lay the blocks of adjacent rows out.

        Args:
            blocks: of these rows.
            first_row: the first of them.
            device: for the tensors.
            num_slots: how many slots the pass reads, used or not, where everything must have a fixed shape; ``None``
                for those in use.
            extra_ids: tokens outside the vocabulary that stand in the blocks.
        """
        widths = tuple(len(block.token_ids) for block in blocks)
        width, starts = max(widths), [block.start for block in blocks]
        rows = slice(first_row, first_row + len(blocks))
        chains = all(block.parents is None for block in blocks)
        stop = max(starts) + width if num_slots is None else num_slots
        # Drafts that are on the device already must not come back for this; ids of the host go over together.
        home = device if any(block.token_ids.device == device for block in blocks) else torch.device("cpu")
        if num_slots is None and chains and min(starts) == max(starts) and min(widths) == width:
            return cls(
                token_ids=torch.stack([block.token_ids.to(home) for block in blocks]).to(device),
                positions=torch.arange(starts[0], stop, device=device)[None],
                widths=widths,
                window=Window(rows, slice(starts[0], stop), stop),
                slots=None,
                ancestors=None,
                extra_ids=extra_ids,
            )
        token_ids = torch.full((len(blocks), width), _PADDING_ID, device=home)
        offsets = torch.arange(width)
        slots = torch.tensor(starts)[:, None] + offsets
        depths = torch.minimum(offsets, torch.tensor(widths)[:, None] - 1)  # padding repeats the last position
        ancestors = None if chains else torch.ones(width, width, dtype=torch.bool).tril().repeat(len(blocks), 1, 1)
        for row, block in enumerate(blocks):
            length = len(block.token_ids)
            token_ids[row, :length] = block.token_ids
            if block.parents is not None and ancestors is not None:
                row_depths, row_ancestors = ancestry(block.parents)
                depths[row, :length] = torch.tensor(row_depths)
                ancestors[row, :length, :length] = row_ancestors
        positions = (torch.tensor(starts)[:, None] + depths).clamp(min=0)
        slots = slots.to(device)
        adjacent = num_slots is None and min(starts) == max(starts)
        return cls(
            token_ids=token_ids.to(device),
            positions=positions.to(device),
            widths=widths,
            window=Window(rows, slice(starts[0], stop) if adjacent else slots, stop),
            slots=slots,
            ancestors=None if ancestors is None else ancestors.to(device),
            extra_ids=extra_ids,
        )

    @classmethod
    def without_cache(
        cls,
        token_ids: Int[Tensor, "rows width"],
        positions: Int[Tensor, "rows width"],
        visible: Bool[Tensor, "rows width width"],
        *,
        extra_ids: tuple[int, ...],
    ) -> Rectangle:
        """Whole sequences, each in a row of its own, in which the caller says who sees whom.

        Args:
            token_ids: of all rows, alike in length.
            positions: of every token in its sequence.
            visible: for each token those that it sees, itself among them.
            extra_ids: tokens outside the vocabulary that stand in the rows.
        """
        rows, width = token_ids.shape
        slots = torch.arange(width, device=token_ids.device).expand(rows, -1)
        window = Window(slice(0, rows), slice(0, width), width)
        return cls(
            token_ids=token_ids,
            positions=positions,
            widths=(width,) * rows,
            window=window,
            slots=slots,
            ancestors=visible,
            extra_ids=extra_ids,
        )

    def mask(self, window: int | None) -> Bool[Tensor, "rows 1 width num_keys"]:
        """Who sees which slot, for all heads alike.

        Args:
            window: how many positions a sliding-window layer looks back (itself included); ``None`` for all.
        """
        assert self.slots is not None, "plain causal attention needs no mask of ours"
        num_keys = self.window.stop
        if self.ancestors is None:
            mask = chain_mask(self.slots, num_keys)
        else:
            mask = tree_mask(self.slots, self.ancestors, num_keys)
        if window is not None:
            mask = mask & window_mask(self.slots, self.positions, num_keys, window)
        return mask[:, None]

    def wanted(
        self, num_logits: int | None, *, may_wait: bool
    ) -> int | Bool[Tensor, "rows width"] | Int[Tensor, "rows most"]:
        """What transformers takes as ``logits_to_keep``: a number of last columns (0 for all), a mask, or places.

        Args:
            num_logits: how many of each row's last tokens are wanted; ``None`` for all of them.
            may_wait: A mask computes nothing in vain, but the host waits to learn how many tokens it names. Otherwise
                rows that want fewer logits than others repeat their last one.
        """
        if min(self.widths) == max(self.widths):
            return 0 if num_logits is None else num_logits
        device = self.token_ids.device
        widths, counts = (torch.tensor(each)[:, None] for each in (self.widths, self._counts(num_logits)))
        if may_wait:
            offsets = torch.arange(self.token_ids.shape[1])
            return ((offsets < widths) & (offsets >= widths - counts)).to(device)
        places = widths - counts + torch.arange(int(counts.max()))
        return torch.minimum(places, widths - 1).clamp(min=0).to(device)  # rows without a block have no tokens

    def _counts(self, num_logits: int | None) -> list[int]:
        return [width if num_logits is None else min(num_logits, width) for width in self.widths]

    def logits_of_rows(
        self, logits: Float[Tensor, "*places vocab"], num_logits: int | None
    ) -> list[Float[Tensor, "num_logits vocab"]]:
        """Each row's last ``num_logits`` logits, from those of all tokens or those that ``wanted`` named."""
        counts = self._counts(num_logits)
        if logits.ndim == 2:  # of places in the rectangle transformers makes one list
            return list(logits.split(counts))
        if logits.shape[1] < self.token_ids.shape[1]:
            return [row[:count] for row, count in zip(logits, counts, strict=True)]
        return [row[width - count : width] for row, width, count in zip(logits, self.widths, counts, strict=True)]
