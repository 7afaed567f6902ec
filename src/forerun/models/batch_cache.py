"""Keys and values of many sequences in shared buffers, each row with a length of its own.

A token's slot is its place in its sequence. Buffers have spare room, so that appending copies nothing (transformers'
own dynamic cache copies all keys and values for every token: a quarter of batched decoding on a CPU). Rolling back is
not even a write: slots past a row's length are hidden by the attention mask, and the next tokens overwrite them.
Sliding-window layers are kept whole too, so that any rollback is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import Cache
from transformers.cache_utils import DynamicLayer

_SPARE_SLOTS = 64
_STATIC_SLOTS = 256


@final
@dataclass(frozen=True, slots=True)
class Window:
    """The part of the buffers that one forward pass reads and writes.

    Attributes:
        rows: adjacent rows of the buffers, those of the pass.
        slots: where its tokens go: a slice where that is the same in every row.
        stop: slots from here on are out of sight.
    """

    rows: slice
    slots: slice | Int[Tensor, "rows width"]
    stop: int


@final
class BatchLayer(DynamicLayer):
    """Keys and values of one layer; ``keys`` and ``values`` are views of what the last pass saw."""

    def __init__(self) -> None:
        DynamicLayer.__init__(self)
        self.window = Window(slice(0, 0), slice(0, 0), 0)
        self._num_rows, self._num_slots = 0, 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Start with empty buffers of the right shape."""
        self.device = key_states.device
        self._key_buffer, self._value_buffer = (
            _grown(states[:0, :, :0], self._num_rows, self._num_slots) for states in (key_states, value_states)
        )
        self.is_initialized = True

    def resize(self, num_rows: int, num_slots: int) -> None:
        """Make the buffers larger; the first pass makes them."""
        self._num_rows, self._num_slots = num_rows, num_slots
        if self.is_initialized:
            self._key_buffer = _grown(self._key_buffer, num_rows, num_slots)
            self._value_buffer = _grown(self._value_buffer, num_rows, num_slots)

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write the pass's keys and values into its slots; returns all that it may see."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        window = self.window
        self.keys = self._key_buffer[window.rows, :, : window.stop]
        self.values = self._value_buffer[window.rows, :, : window.stop]
        if isinstance(window.slots, slice):
            self.keys[:, :, window.slots] = key_states
            self.values[:, :, window.slots] = value_states
        else:
            rows = torch.arange(len(window.slots), device=self.device)[:, None]
            self.keys[rows, :, window.slots] = key_states.transpose(1, 2)  # (rows, width, heads, head_dim)
            self.values[rows, :, window.slots] = value_states.transpose(1, 2)
        return self.keys, self.values

    def get_seq_length(self) -> int:
        """Tokens before the pass where its rows agree; then transformers makes the masks itself."""
        return int(self.window.slots.start) if isinstance(self.window.slots, slice) else 0

    def buffers(self) -> tuple[Tensor, ...]:
        """All slots of all rows, keys and values; nothing before the first pass."""
        return (self._key_buffer, self._value_buffer) if self.is_initialized else ()


@final
class BatchCache(Cache):
    """All layers of a target; knows slots and rows, and no tokens.

    Args:
        num_layers: of the target.
        static: grow seldom, by doubling. Recorded passes always read the whole of the buffers, and each growth makes
            them worthless.
    """

    def __init__(self, num_layers: int, *, static: bool = False) -> None:
        self.batch_layers = [BatchLayer() for _ in range(num_layers)]
        super().__init__(layers=list(self.batch_layers))
        self._static = static
        self._num_rows = 0
        self.num_slots = 0

    @property
    def started(self) -> bool:
        """Whether a pass has made the buffers."""
        return self.batch_layers[0].is_initialized

    def reserve_rows(self, count: int) -> None:
        """Have room for this many rows."""
        if count > self._num_rows:
            self._resize(max(count, 2 * self._num_rows), self.num_slots)

    def reserve_slots(self, count: int) -> None:
        """Have room for this many tokens in every row."""
        if count > self.num_slots:
            spacious = max(2 * self.num_slots, _STATIC_SLOTS)
            self._resize(self._num_rows, max(count, spacious) if self._static else count + _SPARE_SLOTS)

    def open(self, window: Window) -> None:
        """Say which rows and slots the next pass is about."""
        for layer in self.batch_layers:
            layer.window = window

    @torch.inference_mode()
    def _resize(self, num_rows: int, num_slots: int) -> None:
        self._num_rows, self.num_slots = num_rows, num_slots
        for layer in self.batch_layers:
            layer.resize(num_rows, num_slots)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and slots that there is room for; whatever was recorded under another shape is worthless."""
        return self._num_rows, self.num_slots

    @torch.inference_mode()
    def copy_row(self, source: int, destination: int) -> None:
        """Overwrite a row with another, hidden slots and all."""
        for layer in self.batch_layers:
            for buffer in layer.buffers():
                buffer[destination] = buffer[source]

    @torch.inference_mode()
    def clear_row(self, row: int) -> None:
        """Forget a row for good: numbers that are not finite must not reach the row that comes after it."""
        for layer in self.batch_layers:
            for buffer in layer.buffers():
                buffer[row].zero_()

    @torch.inference_mode()
    def move(self, row: int, destination: int, sources: Int[Tensor, " moved"]) -> None:
        """Put the keys and values of some slots of a row side by side, from slot ``destination`` on."""
        stop = destination + len(sources)
        for layer in self.batch_layers:
            for buffer in layer.buffers():
                buffer[row, :, destination:stop] = buffer[row][:, sources]


def _grown(old: Tensor, num_rows: int, num_slots: int) -> Tensor:
    """Zeros where nothing is written yet: a hidden value still meets a weight of zero, which a NaN would survive."""
    rows, heads, slots, head_dim = old.shape
    grown = old.new_zeros(num_rows, heads, num_slots, head_dim)
    grown[:rows, :, :slots] = old
    return grown
