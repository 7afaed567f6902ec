"""A key-value cache that writes into spare room instead of copying itself for every token.

transformers' own dynamic cache concatenates, which copies all keys and values of all layers at every step: a quarter of
the time of batched decoding on a CPU. Rolling back is a change of length; the next tokens overwrite what was there.
"""

from __future__ import annotations

from typing import Any, final

from torch import Tensor
from transformers import Cache
from transformers.cache_utils import DynamicLayer

_SPARE_TOKENS = 64


@final
class GrowingLayer(DynamicLayer):
    """Keys and values of one layer; ``keys`` and ``values`` are views of the part of the buffers that is in use."""

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Start with empty buffers of the right shape."""
        self.device = key_states.device
        self._key_buffer, self._value_buffer = key_states[..., :0, :], value_states[..., :0, :]
        self._use(0)
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append, growing the buffers when they are full; returns everything so far."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self._length
        stop = start + key_states.shape[-2]
        if stop > self._key_buffer.shape[-2]:
            self._key_buffer = _grown(self._key_buffer, start, stop + _SPARE_TOKENS)
            self._value_buffer = _grown(self._value_buffer, start, stop + _SPARE_TOKENS)
        self._key_buffer[..., start:stop, :] = key_states
        self._value_buffer[..., start:stop, :] = value_states
        return self._use(stop)

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last ``-tokens_to_remove`` tokens (transformers counts them as a negative number)."""
        if tokens_to_remove < 0 and self.is_initialized:
            self._use(self._length + tokens_to_remove)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep only some rows of the batch."""
        if self.is_initialized:
            self._key_buffer = self._key_buffer[indices]
            self._value_buffer = self._value_buffer[indices]
            self._use(self._length)

    def _use(self, length: int) -> tuple[Tensor, Tensor]:
        self._length = length
        self.keys, self.values = self._key_buffer[..., :length, :], self._value_buffer[..., :length, :]
        return self.keys, self.values


def growing_cache() -> Cache:
    """An empty cache; layers are added as the model first writes to them.

    Sliding-window layers are kept whole too, so that any rollback is exact; the model's mask still hides what lies
    outside the window.
    """
    return Cache(layer_class_to_replicate=GrowingLayer)


def _grown(old: Tensor, used: int, capacity: int) -> Tensor:
    buffer = old.new_empty(*old.shape[:-2], capacity, old.shape[-1])
    buffer[..., :used, :] = old[..., :used, :]
    return buffer
