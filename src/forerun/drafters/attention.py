"""One transformer layer of a drafter, with the keys and values of what it may look back at given from outside.

Every drafter network is built from it: attention with grouped heads and rotary positions, then a gated MLP. Attention
runs through torch's scaled dot product with an explicit mask, or through its flex attention, which skips the blocks of
a mask that are empty; both masks come from one rule (`MaskRule`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, final

import torch
from jaxtyping import Bool, Float, Int
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from forerun.drafters.rope import Rope, Rotation


@final
class LayerShape(BaseModel):
    """Sizes and numbers of a drafter's layers; every norm is said to be there or not, nothing is left to a default.

    Attributes:
        num_heads, num_kv_heads, head_dim, intermediate_size: of attention and MLP.
        head_norms: queries and keys are normalised (as in Qwen3).
        rope: positions.
        norm_eps: of all norms.
        window: a query reads keys less than this many positions before it; ``None`` reads all.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    num_heads: int = Field(gt=0)
    num_kv_heads: int = Field(gt=0)
    head_dim: int = Field(gt=0, multiple_of=2)
    intermediate_size: int = Field(gt=0)
    head_norms: bool
    rope: Rope
    norm_eps: float = Field(gt=0)
    window: int | None = Field(gt=0)

    @model_validator(mode="after")
    def _shapes_fit(self) -> LayerShape:
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"num_heads {self.num_heads} is not a multiple of num_kv_heads {self.num_kv_heads}")
        if self.rope.rotary_dim > self.head_dim:
            raise ValueError(f"rope turns {self.rope.rotary_dim} numbers of a head, head_dim is {self.head_dim}")
        return self


@final
class KeysValues:
    """Keys (turned to their positions) and values of consecutive positions, in buffers that grow by doubling.

    Args:
        keys: of the first positions.
        values: likewise.
    """

    def __init__(
        self,
        keys: Float[Tensor, "batch kv_heads length head_dim"],
        values: Float[Tensor, "batch kv_heads length head_dim"],
    ) -> None:
        self._keys, self._values, self._length = keys, values, keys.shape[2]

    @property
    def length(self) -> int:
        """Positions."""
        return self._length

    @property
    def keys(self) -> Float[Tensor, "batch kv_heads length head_dim"]:
        """A view."""
        return self._keys[:, :, : self._length]

    @property
    def values(self) -> Float[Tensor, "batch kv_heads length head_dim"]:
        """A view."""
        return self._values[:, :, : self._length]

    def append(self, more: KeysValues) -> None:
        """Add the positions that follow."""
        needed = self._length + more.length
        if needed > self._keys.shape[2]:
            self._keys, self._values = _grown(self._keys, needed), _grown(self._values, needed)
        self._keys[:, :, self._length : needed] = more.keys
        self._values[:, :, self._length : needed] = more.values
        self._length = needed

    def cut(self, length: int) -> None:
        """Forget the positions from ``length`` on."""
        assert length <= self._length
        self._length = length

    def last(self, count: int) -> KeysValues:
        """The last ``count`` positions, as a view."""
        start = max(0, self._length - count)
        return KeysValues(self._keys[:, :, start : self._length], self._values[:, :, start : self._length])


def _grown(buffer: Tensor, needed: int) -> Tensor:
    grown = buffer.new_empty(*buffer.shape[:2], max(needed, 2 * buffer.shape[2]), buffer.shape[3])
    grown[:, :, : buffer.shape[2]] = buffer
    return grown


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)  # decoding has one part, which is not copied


@final
class Attention(nn.Module):
    """Attention of one layer.

    Args:
        shape: sizes.
        input_size: width of what queries, keys and values are made of.
        hidden_size: width of the residual stream.
    """

    def __init__(self, shape: LayerShape, *, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.shape = shape
        self.query = nn.Linear(input_size, shape.num_heads * shape.head_dim, bias=False)
        self.key = nn.Linear(input_size, shape.num_kv_heads * shape.head_dim, bias=False)
        self.value = nn.Linear(input_size, shape.num_kv_heads * shape.head_dim, bias=False)
        self.output = nn.Linear(shape.num_heads * shape.head_dim, hidden_size, bias=False)
        if shape.head_norms:
            self.query_norm = nn.RMSNorm(shape.head_dim, eps=shape.norm_eps)
            self.key_norm = nn.RMSNorm(shape.head_dim, eps=shape.norm_eps)

    def keys_values(self, inputs: Float[Tensor, "batch length width"], rotation: Rotation) -> KeysValues:
        """Of positions that others will look back at."""
        keys = self._heads(self.key(inputs))
        if self.shape.head_norms:
            keys = self.key_norm(keys)
        return KeysValues(rotation.turn(keys), self._heads(self.value(inputs)))

    def forward(
        self,
        inputs: Float[Tensor, "batch length width"],
        rotation: Rotation,
        parts: list[KeysValues],
        visible: Bool[Tensor, "batch length keys"] | BlockMask | None,
    ) -> Float[Tensor, "batch length hidden"]:
        """Attend.

        Args:
            inputs: of the queries.
            rotation: to their positions.
            parts: what can be looked at, one after another.
            visible: which of these keys each query may read; ``None`` for all.
        """
        queries = self._heads(self.query(inputs))
        if self.shape.head_norms:
            queries = self.query_norm(queries)
        queries = rotation.turn(queries)
        keys = torch.cat([part.keys for part in parts], dim=2)
        values = torch.cat([part.values for part in parts], dim=2)
        if isinstance(visible, BlockMask):
            attended = flex_attended(queries, keys, values, visible)
        else:
            attended = functional.scaled_dot_product_attention(
                queries, keys, values, attn_mask=None if visible is None else visible[:, None], enable_gqa=True
            )
        output: Tensor = self.output(attended.transpose(1, 2).flatten(start_dim=2))
        return output

    def _heads(self, flat: Tensor) -> Tensor:
        heads: Tensor = flat.unflatten(-1, (-1, self.shape.head_dim))
        return heads.transpose(1, 2)  # (batch, heads, length, head_dim)


@final
class GatedMLP(nn.Module):
    """``down(silu(gate(x)) * up(x))``.

    Args:
        hidden_size: in and out.
        intermediate_size: between.
    """

    def __init__(self, hidden_size: int, intermediate_size: int) -> None:
        super().__init__()
        self.gate = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.up = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.down = nn.Linear(intermediate_size, hidden_size, bias=False)

    def forward(self, inputs: Float[Tensor, "*batch hidden"]) -> Float[Tensor, "*batch hidden"]:
        """Position by position."""
        mixed: Tensor = self.down(functional.silu(self.gate(inputs)) * self.up(inputs))
        return mixed


MaskRule = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From indices of rows, queries and keys, of shapes that broadcast, to whether the query may read the key."""


def dense_mask(
    rule: MaskRule, *, rows: int, queries: int, keys: int, device: torch.device
) -> Bool[Tensor, "rows queries keys"]:
    """The rule asked for every pair."""
    places = [torch.arange(count, device=device) for count in (rows, queries, keys)]
    return rule(places[0][:, None, None], places[1][:, None], places[2]).expand(rows, queries, keys)


def block_mask(rule: MaskRule, *, rows: int, queries: int, keys: int, device: torch.device) -> BlockMask:
    """The same for `flex_attended`: which blocks of pairs are empty, full or neither."""
    return create_block_mask(
        lambda row, _head, query, key: rule(row, query, key), rows, None, queries, keys, device=str(device)
    )


def flex_attended(
    queries: Float[Tensor, "batch heads length head_dim"],
    keys: Float[Tensor, "batch kv_heads keys head_dim"],
    values: Float[Tensor, "batch kv_heads keys head_dim"],
    visible: BlockMask,
) -> Float[Tensor, "batch heads length head_dim"]:
    """Attention that skips the mask's empty blocks: compiled on a GPU; on a CPU plain, forward only, for tests."""
    if queries.device.type == "cuda":
        compiled: Tensor = _compiled_flex()(queries, keys, values, block_mask=visible, enable_gqa=True)
        return compiled
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="flex_attention called without torch.compile", category=UserWarning)
        plain: Tensor = flex_attention(queries, keys, values, block_mask=visible, enable_gqa=True)
        return plain


@cache
def _compiled_flex() -> Callable[..., Any]:
    return torch.compile(flex_attention)


def within(
    window: int | None, query_positions: Int[Tensor, "batch length"], key_positions: Int[Tensor, "batch keys"]
) -> Bool[Tensor, "batch length keys"]:
    """Keys less than ``window`` positions before a query (later ones, too: other masks deal with these)."""
    distance = query_positions[:, :, None] - key_positions[:, None, :]
    return torch.ones_like(distance, dtype=torch.bool) if window is None else distance < window
