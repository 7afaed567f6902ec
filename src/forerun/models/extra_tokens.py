"""Input tokens that no text contains: ids from the vocabulary's size on, each with an adapter of its own.

They can be read and never written, for the head has no row for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import final

from jaxtyping import Int
from torch import Tensor, nn

from forerun.models.mask_adapter import MaskAdapter


@final
class ExtraTokens:
    """The extra tokens of one model.

    Args:
        vocab_size: the first id that is free.
        embedding: the model's table of tokens.
        layers: its decoder layers.
    """

    def __init__(self, vocab_size: int, embedding: nn.Module, layers: nn.ModuleList) -> None:
        self._vocab_size = vocab_size
        self._embedding = embedding
        self._layers = layers
        self._adapters: list[MaskAdapter] = []

    def add(self, adapter: MaskAdapter) -> int:
        """Let the model read one more token; returns its id."""
        adapter.attach(self._embedding, self._layers)
        self._adapters.append(adapter)
        return self._vocab_size + len(self._adapters) - 1

    def among(self, parts: Iterable[Int[Tensor, "*shape"]]) -> tuple[int, ...]:
        """The extra tokens in some pieces of text, each once."""
        if not self._adapters:
            return ()
        found = {int(each) for part in parts for each in part[part >= self._vocab_size]}
        assert all(each < self._vocab_size + len(self._adapters) for each in found), f"unknown ids in {found}"
        return tuple(sorted(found))

    @contextmanager
    def reading(self, token_ids: Int[Tensor, "rows width"], present: tuple[int, ...]) -> Iterator[Tensor]:
        """Ids as the model itself knows them; the adapters of those that are ``present`` act meanwhile."""
        if not present:
            yield token_ids
            return
        adapters = [(self._adapters[each - self._vocab_size], token_ids == each) for each in present]
        try:
            for adapter, rows in adapters:
                adapter.act_on(rows)
            yield token_ids.masked_fill(token_ids >= self._vocab_size, 0)
        finally:
            for adapter, _ in adapters:
                adapter.act_on(None)
