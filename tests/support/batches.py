"""A batch whose every logit and feature is compared with whole passes of transformers over that row's own tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from forerun.models import Block, TargetBatch, TargetCache, TransformersTarget

CAPTURED = (1, 0)


@dataclass(eq=False)
class Row:
    """A cache, and the tokens that it should hold."""

    cache: TargetCache
    token_ids: list[int]


@dataclass(frozen=True)
class Piece:
    """Tokens that a row gets in a pass; of a tree, ``kept`` is the path that stays (node numbers)."""

    row: Row
    token_ids: list[int]
    parents: tuple[int, ...] | None = None
    kept: Sequence[int] = ()


class CheckedBatch:
    """Feeds a batch; the oracle has no cache, no rounds, no padding and no masks of its own."""

    def __init__(self, target: TransformersTarget, reference: Any, *, close: float) -> None:
        self.target = target
        self._reference = reference
        self._close = close
        self.batch: TargetBatch = target.new_batch()
        self.rows: list[Row] = []

    def add(self, copy_of: Row | None = None) -> Row:
        row = Row(
            self.batch.add(copy_of.cache if copy_of is not None else None),
            list(copy_of.token_ids) if copy_of is not None else [],
        )
        self.rows.append(row)
        return row

    def remove(self, row: Row) -> None:
        self.batch.remove(row.cache)
        self.rows.remove(row)

    def rollback(self, row: Row, length: int) -> None:
        row.cache.rollback(length)
        del row.token_ids[length:]

    def forward(self, *pieces: Piece, num_logits: int | None = None) -> None:
        """One pass, checked token by token; trees are cut down to the path that is kept."""
        blocks = [
            Block(cache=piece.row.cache, token_ids=torch.tensor(piece.token_ids), parents=piece.parents)
            for piece in pieces
        ]
        steps = self.target.forward_batch(blocks, captured=CAPTURED, num_logits=num_logits)
        assert len(steps) == len(pieces)
        for piece, step, (logits, features) in zip(pieces, steps, self._expected(pieces), strict=True):
            count = len(logits) if num_logits is None else min(num_logits, len(logits))
            torch.testing.assert_close(step.logits, logits[-count:], rtol=0, atol=self._close)
            torch.testing.assert_close(step.features, features, rtol=0, atol=self._close)
            start = len(piece.row.token_ids)
            assert piece.row.cache.length == start + len(piece.token_ids)
            if piece.parents is None:
                piece.row.token_ids += piece.token_ids
            else:
                piece.row.cache.keep(start, piece.kept)
                piece.row.token_ids += [piece.token_ids[node] for node in piece.kept]
        assert len(self.batch) == len(self.rows)
        assert [row.cache.length for row in self.rows] == [len(row.token_ids) for row in self.rows]

    def _expected(self, pieces: Sequence[Piece]) -> list[tuple[Tensor, Tensor]]:
        """Logits and features of each piece's tokens; each token is the last of a sequence that is read from its start.

        The sequences are filled up on the right: in a causal model nothing that comes later matters.
        """
        ends: list[list[int]] = []  # for every token of every piece, the sequence that ends with it
        for piece in pieces:
            paths: list[list[int]] = []
            parents = range(-1, len(piece.token_ids) - 1) if piece.parents is None else piece.parents
            for token_id, parent in zip(piece.token_ids, parents, strict=True):
                paths.append([*(paths[parent] if parent >= 0 else piece.row.token_ids), token_id])
            ends += [paths[-1]] if piece.parents is None else paths
        width = max(len(end) for end in ends)
        with torch.no_grad():
            output = self._reference(
                input_ids=torch.tensor([end + [0] * (width - len(end)) for end in ends]),
                use_cache=False,
                output_hidden_states=True,
            )
        features = torch.stack([output.hidden_states[layer + 1] for layer in CAPTURED], dim=2)
        expected, index = [], 0
        for piece in pieces:
            count = len(piece.token_ids)
            if piece.parents is None:
                stop = len(ends[index])
                expected.append((output.logits[index, stop - count : stop], features[index, stop - count : stop]))
                index += 1
            else:
                places = (
                    torch.arange(index, index + count),
                    torch.tensor([len(end) - 1 for end in ends[index:][:count]]),
                )
                expected.append((output.logits[places], features[places]))
                index += count
        return expected
