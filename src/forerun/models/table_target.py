"""A target whose every law is a table: the reference that exactness is proved against."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from forerun.models.target import Target, TargetCache, TargetStep


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

    def new_cache(self) -> TableCache:
        """An empty cache for one sequence."""
        return TableCache()

    def forward(
        self,
        token_ids: Int[Tensor, " length"],
        cache: TargetCache,
        *,
        captured: tuple[int, ...] = (),
        num_logits: int | None = None,
    ) -> TargetStep:
        """See :class:`Target`."""
        assert isinstance(cache, TableCache), "a cache belongs to the target that made it"
        rows = []
        for token_id in token_ids.tolist():
            cache.token_ids.append(token_id)
            rows.append(self._logits_of(tuple(cache.token_ids)))
        keep = len(rows) if num_logits is None else num_logits
        features = torch.zeros(len(rows), len(captured), 1, dtype=torch.float64)
        return TargetStep(logits=torch.stack(rows[len(rows) - keep :]), features=features)
