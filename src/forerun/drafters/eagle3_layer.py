"""EAGLE-3's one layer, the norm of its features, and the mask with which it is trained."""

from __future__ import annotations

from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from forerun.drafters.attention import Attention, GatedMLP, KeysValues, LayerShape, within
from forerun.drafters.rope import Rotation


@final
class FeatureNorm(nn.Module):
    """Root mean square norm of every captured layer's feature by itself.

    Args:
        num_captured: features.
        hidden_size: of each.
        eps: of the norm.
    """

    def __init__(self, num_captured: int, hidden_size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(num_captured, hidden_size))
        self._eps = eps

    def forward(self, features: Float[Tensor, "*batch layers hidden"]) -> Float[Tensor, "*batch layers hidden"]:
        """Row i of the weight belongs to captured layer i."""
        return functional.rms_norm(features, self.weight.shape[-1:], eps=self._eps) * self.weight


@final
class Eagle3Layer(nn.Module):
    """Attention whose input is [norm(embedding), norm(hidden)], then a gated MLP.

    Args:
        shape: sizes.
        hidden_size: of the residual stream.
        norm_before_residual: see ``Eagle3Config``.
    """

    def __init__(self, shape: LayerShape, hidden_size: int, *, norm_before_residual: bool) -> None:
        super().__init__()
        self.shape = shape
        self._norm_before_residual = norm_before_residual
        self.embedding_norm = nn.RMSNorm(hidden_size, eps=shape.norm_eps)
        self.hidden_norm = nn.RMSNorm(hidden_size, eps=shape.norm_eps)
        self.attention = Attention(shape, input_size=2 * hidden_size, hidden_size=hidden_size)
        self.mlp_norm = nn.RMSNorm(hidden_size, eps=shape.norm_eps)
        self.mlp = GatedMLP(hidden_size, shape.intermediate_size)

    def inputs(
        self, hidden: Float[Tensor, "batch length hidden"], embeddings: Float[Tensor, "batch length hidden"]
    ) -> tuple[Float[Tensor, "batch length width"], Float[Tensor, "batch length hidden"]]:
        """What attention reads of pairs, and the residual stream's beginning."""
        normed = self.hidden_norm(hidden)
        read = torch.cat([self.embedding_norm(embeddings), normed], dim=-1)
        return read, normed if self._norm_before_residual else hidden

    def forward(
        self,
        read: Float[Tensor, "batch length width"],
        residual: Float[Tensor, "batch length hidden"],
        rotation: Rotation,
        parts: list[KeysValues],
        visible: Bool[Tensor, "batch length keys"] | None,
    ) -> Float[Tensor, "batch length hidden"]:
        """The residual stream after the layer; ``parts`` hold the keys of the pairs themselves, too."""
        states = residual + self.attention(read, rotation, parts, visible)
        output: Tensor = states + self.mlp(self.mlp_norm(states))
        return output


def slot_visibility(
    first: Int[Tensor, "rows blocks"], *, slot: int, length: int, window: int | None
) -> Bool[Tensor, "rows blocks keys"]:
    """The mask of training-time test: which keys slot number ``slot`` of each block reads.

    Keys are those of ``length`` known pairs, then those of slot 1 of all blocks, of slot 2 and so on up to ``slot``.

    Args:
        first: place of each block's slot 0, which is a known pair.
        slot: whose queries.
        length: known pairs.
        window: as in ``LayerShape``.
    """
    rows, blocks = first.shape
    places = torch.arange(length, device=first.device).expand(rows, -1)
    visible = [(places[:, None] <= first[:, :, None]) & within(window, first + slot, places)]
    own_block = torch.eye(blocks, dtype=torch.bool, device=first.device).expand(rows, -1, -1)
    for earlier in range(1, slot + 1):
        near = window is None or slot - earlier < window
        visible.append(own_block if near else torch.zeros_like(own_block))
    return torch.cat(visible, dim=2)
