"""A target whose every law is a table: the reference that exactness is proved against."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from forerun.models.target import Block, Target, TargetBatch, TargetCache, TargetStep


@final
class TableCache(TargetCache):
    """The tokens themselves; a table needs nothing else."""

    def __init__(self) -> None:
        self.token_ids: list[int] = []

    @property
    def length(self) -> int:
        """Tokens that the target has processed."""
        return len(self.token_ids)

    def rollback(self, length: int) -> None:
        """Forget every token from position ``length`` on."""
        assert length <= len(self.token_ids)
        del self.token_ids[length:]

    def keep(self, start: int, kept: Sequence[int]) -> None:
        """Of the tokens from position ``start`` on keep those at these offsets."""
        self.token_ids[start:] = [self.token_ids[start + offset] for offset in kept]


@final
class TableBatch(TargetBatch):
    """Nothing is shared between rows; a batch only knows which are its own."""

    def __init__(self) -> None:
        self._rows: list[TableCache] = []

    def add(self, copy_of: TargetCache | None = None) -> TableCache:
        """A new row, empty or a copy."""
        row = TableCache()
        if copy_of is not None:
            assert isinstance(copy_of, TableCache) and copy_of in self._rows
            row.token_ids += copy_of.token_ids
        self._rows.append(row)
        return row

    def remove(self, cache: TargetCache) -> None:
        """Let a row go."""
        assert isinstance(cache, TableCache)
        self._rows.remove(cache)

    def __len__(self) -> int:
        """Rows."""
        return len(self._rows)


@final
class TableTarget(Target):
    """Next-token logits from a function of the whole prefix, in float64.

    Args:
        logits_of: prefix of token ids to unnormalised log-probabilities over ``vocab_size`` tokens.
        vocab_size: number of tokens.
        stop_ids: ids that end an answer.
        max_positions: longest sequence.

    Example:
        >>> import torch
        >>> coin = TableTarget(lambda prefix: torch.tensor([0.25, 0.75], dtype=torch.float64).log(), vocab_size=2)
        >>> step = coin.forward(torch.tensor([0]), coin.new_cache())
        >>> step.logits.exp().tolist()
        [[0.25, 0.75]]
    """

    def __init__(
        self,
        logits_of: Callable[[tuple[int, ...]], Float[Tensor, " vocab"]],
        *,
        vocab_size: int,
        stop_ids: tuple[int, ...] = (),
        max_positions: int = 1_000_000,
    ) -> None:
        self._logits_of = logits_of
        self._vocab_size = vocab_size
        self._stop_ids = stop_ids
        self._max_positions = max_positions

    @property
    def name(self) -> str:
        """Always ``table``."""
        return "table"

    @property
    def vocab_size(self) -> int:
        """Width of the logits."""
        return self._vocab_size

    @property
    def hidden_size(self) -> int:
        """Tables have no residual stream; features are one zero wide."""
        return 1

    @property
    def num_layers(self) -> int:
        """One, so that a drafter that wants a feature gets a zero."""
        return 1

    @property
    def max_positions(self) -> int:
        """Longest sequence in tokens."""
        return self._max_positions

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Token ids that end an answer."""
        return self._stop_ids

    @property
    def dtype(self) -> torch.dtype:
        """Always float64."""
        return torch.float64

    @property
    def fingerprint(self) -> str:
        """Hash of the empty prefix's law."""
        return hashlib.sha256(self._logits_of(()).numpy().tobytes()).hexdigest()

    def with_head_rows(self, token_ids: Int[Tensor, " kept"]) -> TableTarget:
        """See :class:`Target`."""
        return TableTarget(
            lambda prefix: self._logits_of(prefix)[token_ids],
            vocab_size=len(token_ids),
            stop_ids=self._stop_ids,
            max_positions=self._max_positions,
        )

    def new_batch(self) -> TableBatch:
        """A batch without rows."""
        return TableBatch()

    def forward_batch(
        self, blocks: Sequence[Block], *, captured: tuple[int, ...] = (), num_logits: int | None = None
    ) -> list[TargetStep]:
        """See :class:`Target`."""
        return [self._step(block, captured, num_logits) for block in blocks]

    def _step(self, block: Block, captured: tuple[int, ...], num_logits: int | None) -> TargetStep:
        cache, token_ids = block.cache, block.token_ids.tolist()
        assert isinstance(cache, TableCache), "a cache belongs to the target that made it"
        parents = range(-1, len(token_ids) - 1) if block.parents is None else block.parents
        before = tuple(cache.token_ids)
        prefixes: list[tuple[int, ...]] = []  # up to and including each token
        for token_id, parent in zip(token_ids, parents, strict=True):
            prefixes.append((*(before if parent < 0 else prefixes[parent]), token_id))
        cache.token_ids += token_ids
        rows = [self._logits_of(prefix) for prefix in prefixes]
        first = 0 if num_logits is None else len(rows) - num_logits
        features = torch.zeros(len(rows), len(captured), 1, dtype=torch.float64)
        return TargetStep(logits=torch.stack(rows[first:]), features=features)
