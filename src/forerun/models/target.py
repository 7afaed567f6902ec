"""What the rest of forerun may ask of a target model: logits, captured features, a cache it can roll back.

This file refuses to know which library runs the model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from forerun.models.clock import Clock, HostClock


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetStep:
    """One forward pass of the target over ``length`` tokens.

    Attributes:
        logits: rows for the last ``num_logits`` tokens; row i decides the token that follows token i.
        features: outputs of the captured decoder layers for every token, in the order they were asked for.
    """

    logits: Float[Tensor, "num_logits vocab"]
    features: Float[Tensor, "length layers hidden"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherStep:
    """One teacher-forced pass over a whole sequence.

    Attributes:
        logits: row i decides token i + 1.
        features: outputs of the captured decoder layers.
        final_hidden: after the final norm, what the head reads.
    """

    logits: Float[Tensor, "length vocab"]
    features: Float[Tensor, "length layers hidden"]
    final_hidden: Float[Tensor, "length hidden"]


class TargetCache(ABC):
    """Keys and values (or whatever state the target keeps) of one sequence: a row of a batch."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Tokens that the target has processed."""

    @abstractmethod
    def rollback(self, length: int) -> None:
        """Forget every token from position ``length`` on; a longer length than the cache's is our own mistake."""

    @abstractmethod
    def keep(self, start: int, kept: Sequence[int]) -> None:
        """Of the tokens from position ``start`` on keep some, as if only these had been processed.

        After a block with a tree this is how its accepted path stays: each kept token must be the predecessor, in the
        tree, of the next one, and the first must follow the token before ``start``.

        Args:
            start: tokens before this position stay as they are.
            kept: offsets from ``start``, in the order of the path.
        """


class TargetBatch(ABC):
    """Sequences that one forward pass can process together; rows join and leave at any time."""

    @abstractmethod
    def add(self, copy_of: TargetCache | None = None) -> TargetCache:
        """A new row.

        Args:
            copy_of: a row of this batch to start from; ``None`` for an empty one.
        """

    @abstractmethod
    def remove(self, cache: TargetCache) -> None:
        """Let a row go; its memory serves the rows that join later, and ``cache`` must not be used again."""

    @abstractmethod
    def __len__(self) -> int:
        """Rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Tokens of one sequence in one forward pass.

    Attributes:
        cache: the sequence: a row of a batch.
        token_ids: at least one token.
        parents: ``None`` for a chain. For a tree, for each token the index inside the block of the token before it,
            always a smaller one, or -1 where that is the last cached token.
    """

    cache: TargetCache
    token_ids: Int[Tensor, " length"]
    parents: tuple[int, ...] | None = None


class Target(ABC):
    """A frozen next-token model.

    The convention for captured features is written here once: feature ``l`` is the *output* of 0-based decoder
    layer ``l``, that is the residual stream after that layer, before any final norm.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """What the user called it."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Width of the logits."""

    @property
    @abstractmethod
    def hidden_size(self) -> int:
        """Width of the residual stream."""

    @property
    @abstractmethod
    def num_layers(self) -> int:
        """Decoder layers; captured layers lie in ``0 .. num_layers - 1``."""

    @property
    @abstractmethod
    def max_positions(self) -> int:
        """Longest sequence (prompt and answer together) the target was built for, in tokens."""

    @property
    @abstractmethod
    def stop_ids(self) -> tuple[int, ...]:
        """Token ids that end an answer."""

    @property
    def clock(self) -> Clock:
        """Times the target's passes; the host's, where a pass is done when its call returns."""
        return HostClock()

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """Type of weights and features."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Hash that changes when configuration or weights change."""

    @abstractmethod
    def with_head_rows(self, token_ids: Int[Tensor, " kept"]) -> Target:
        """The same model with logits of some tokens only, in this order; it still reads every token.

        A head is a large part of a small model, and rows that are left out are not computed. ``vocab_size`` of the
        result is the number of rows kept.
        """

    @abstractmethod
    def new_batch(self) -> TargetBatch:
        """A batch without rows."""

    @abstractmethod
    def forward_batch(
        self, blocks: Sequence[Block], *, captured: tuple[int, ...] = (), num_logits: int | None = None
    ) -> list[TargetStep]:
        """Process each block after what its cache holds, and add its tokens to that cache.

        A token sees the cached tokens, its ancestors in the block and itself. Blocks may differ in length, and so may
        their caches; rows of the batch that have no block stay as they are.

        Args:
            blocks: at least one; their caches are different rows of one batch of this target.
            captured: decoder layers whose outputs are returned.
            num_logits: how many of each block's last rows to return; ``None`` for all of them.

        Returns:
            One step for each block, in their order.
        """

    def new_cache(self) -> TargetCache:
        """An empty cache for one sequence: the only row of a new batch."""
        return self.new_batch().add()

    def forward(
        self,
        token_ids: Int[Tensor, " length"],
        cache: TargetCache,
        *,
        captured: tuple[int, ...] = (),
        num_logits: int | None = None,
    ) -> TargetStep:
        """Process ``token_ids`` after what the cache holds, and add them to the cache.

        Args:
            token_ids: at least one token.
            cache: made by this target.
            captured: decoder layers whose outputs are returned.
            num_logits: how many of the last rows to return; ``None`` for all of them.
        """
        block = Block(cache=cache, token_ids=token_ids)
        return self.forward_batch([block], captured=captured, num_logits=num_logits)[0]
