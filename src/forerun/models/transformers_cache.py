"""Rows of a batch as the caches of its requests, for a transformers target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch

from forerun.models.batch_cache import BatchCache
from forerun.models.recorded_pass import RecordedPasses
from forerun.models.target import TargetBatch, TargetCache


@final
class TransformersCache(TargetCache):
    """A row of a :class:`TransformersBatch`.

    Args:
        batch: whose row this is.
        row: its place in the batch's buffers; the batch changes it when other rows leave.
        length: tokens it starts with.
    """

    def __init__(self, batch: TransformersBatch, row: int, length: int) -> None:
        self.batch = batch
        self.row = row
        self._length = length

    @property
    def length(self) -> int:
        """Tokens that the target has processed."""
        return self._length

    def extend(self, num_tokens: int) -> None:
        """The pass that has just run wrote this many tokens."""
        self._length += num_tokens

    def rollback(self, length: int) -> None:
        """Forget every token from position ``length`` on."""
        assert length <= self._length, f"cache holds {self._length} tokens, asked to roll back to {length}"
        self._length = length

    def keep(self, start: int, kept: Sequence[int]) -> None:
        """Of the tokens from position ``start`` on keep those at these offsets."""
        assert all(0 <= offset < self._length - start for offset in kept), "only what the cache holds can be kept"
        in_place = 0
        while in_place < len(kept) and kept[in_place] == in_place:
            in_place += 1
        if in_place < len(kept):
            moved = torch.tensor([start + offset for offset in kept[in_place:]], device=self.batch.device)
            self.batch.inner.move(self.row, start + in_place, moved)
        self._length = start + len(kept)


@final
class TransformersBatch(TargetBatch):
    """Rows that share buffers; those in use are always the first ones, so that a pass works on views.

    Args:
        inner: where their keys and values lie.
        device: on which.
        recorded: repeats narrow passes; ``None`` where every pass is computed from Python.
    """

    def __init__(self, inner: BatchCache, device: torch.device, recorded: RecordedPasses | None) -> None:
        self.inner = inner
        self.device = device
        self.recorded = recorded
        self.rows: list[TransformersCache] = []

    def add(self, copy_of: TargetCache | None = None) -> TransformersCache:
        """A new row, empty or a copy."""
        row = TransformersCache(self, len(self.rows), 0 if copy_of is None else copy_of.length)
        self.inner.reserve_rows(len(self.rows) + 1)
        if copy_of is not None:
            assert isinstance(copy_of, TransformersCache) and copy_of.batch is self
            self.inner.copy_row(copy_of.row, row.row)
        self.rows.append(row)
        return row

    def remove(self, cache: TargetCache) -> None:
        """Let a row go; the last row takes its place in the buffers."""
        assert isinstance(cache, TransformersCache) and self.rows[cache.row] is cache
        last = self.rows.pop()
        if last is not cache:
            self.inner.copy_row(last.row, cache.row)
            self.rows[cache.row], last.row = last, cache.row
        self.inner.clear_row(len(self.rows))

    def __len__(self) -> int:
        """Rows."""
        return len(self.rows)
