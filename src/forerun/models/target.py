"""What the rest of forerun may ask of a target model: logits, captured features, a cache it can roll back.

This file refuses to know which library runs the model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


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
    """Keys and values (or whatever state the target keeps) of one sequence."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Tokens that the target has processed."""

    @abstractmethod
    def rollback(self, length: int) -> None:
        """Forget every token from position ``length`` on; a longer length than the cache's is our own mistake."""


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
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """Type of weights and features."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Hash that changes when configuration or weights change."""

    @abstractmethod
    def new_cache(self) -> TargetCache:
        """An empty cache for one sequence."""

    @abstractmethod
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
            cache: made by this target's ``new_cache``.
            captured: decoder layers whose outputs are returned.
            num_logits: how many of the last rows to return; ``None`` for all of them.
        """
