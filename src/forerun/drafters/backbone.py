"""The parallel backbone of the DFlash family: a block of slots over the target's features.

The slots of a block see each other and the target's features of every position *before* the anchor; features enter
each layer as extra keys and values. (DFlash, arXiv 2602.06036; DSpark and DFlash2 build on it.)

Shapes: ``blocks`` anchors, each with ``slots`` inputs; ``context`` positions of target features.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask

from forerun.drafters.attention import (
    Attention,
    GatedMLP,
    KeysValues,
    LayerShape,
    MaskRule,
    block_mask,
    dense_mask,
)
from forerun.drafters.block_inputs import BlockInputs
from forerun.drafters.rope import Rotation

_FLEX_HEAD_DIM = 16  # flex attention's kernels need heads at least as wide

Around = Callable[[Tensor, Callable[[Tensor], Tensor]], Tensor]
"""Runs a sublayer on its normalised input; DFlash2 mixes neighbouring slots before and after it."""


@final
class Backbone(nn.Module):
    """Layers over [context, block].

    Args:
        hidden_size: of target and drafter.
        num_captured: target layers that a feature is made of.
        num_layers: of the drafter.
        shape: of a layer.
    """

    def __init__(self, *, hidden_size: int, num_captured: int, num_layers: int, shape: LayerShape) -> None:
        super().__init__()
        self.shape = shape
        self.feature_projection = nn.Linear(num_captured * hidden_size, hidden_size, bias=False)
        self.feature_norm = nn.RMSNorm(hidden_size, eps=shape.norm_eps)
        self.mask_embedding = nn.Parameter(torch.zeros(hidden_size))
        self.layers = nn.ModuleList(BackboneLayer(hidden_size, shape) for _ in range(num_layers))
        self.final_norm = nn.RMSNorm(hidden_size, eps=shape.norm_eps)

    def context(self, features: Float[Tensor, "batch context layers hidden"], first_position: int) -> list[KeysValues]:
        """Turn target features of consecutive positions into keys and values for every layer.

        Args:
            features: outputs of the captured target layers.
            first_position: absolute position of the first of them.
        """
        mixed = self.feature_norm(self.feature_projection(features.flatten(start_dim=2)))
        positions = torch.arange(first_position, first_position + features.shape[1], device=features.device)
        rotation = self.shape.rope.rotation(positions[None], features.dtype)
        return [layer.attention.keys_values(mixed, rotation) for layer in self._stack]

    def block(
        self,
        context: list[KeysValues],
        anchor_embeddings: Float[Tensor, "batch blocks hidden"],
        anchor_positions: Int[Tensor, "batch blocks"],
        slots: int,
        visible: Bool[Tensor, "batch queries keys"] | BlockMask | None,
        arounds: list[tuple[Around, Around]] | None = None,
    ) -> Float[Tensor, "batch blocks slots hidden"]:
        """Hidden states of every slot, ready for the target's head.

        Args:
            context: from ``context``; positions before the anchors.
            anchor_embeddings: the target's input embeddings of the anchors, which stand in slot 0.
            anchor_positions: absolute positions of the anchors.
            slots: of a block.
            visible: which keys (context first, then all slots of all blocks) each slot may read; ``None`` when there is
                one block and the whole context lies before its anchor, as in decoding.
            arounds: for each layer, what runs its attention and its MLP; ``None`` runs them as they are.
        """
        batch, blocks, hidden = anchor_embeddings.shape
        masks = self.mask_embedding.to(anchor_embeddings.dtype).expand(batch, blocks, slots - 1, hidden)
        states = torch.cat([anchor_embeddings[:, :, None], masks], dim=2).view(batch, blocks * slots, hidden)
        offsets = torch.arange(slots, device=anchor_positions.device)
        positions = (anchor_positions[:, :, None] + offsets).view(batch, blocks * slots)
        rotation = self.shape.rope.rotation(positions, states.dtype)
        pairs = [(_as_is, _as_is)] * len(self.layers) if arounds is None else arounds
        for layer, keys_values, (around_attention, around_mlp) in zip(self._stack, context, pairs, strict=True):
            states = layer(states, rotation, keys_values, visible, around_attention, around_mlp)
        normed: Tensor = self.final_norm(states)
        return normed.view(batch, blocks, slots, hidden)

    def taught(
        self,
        inputs: BlockInputs,
        embedding: Float[Tensor, "vocab hidden"],
        *,
        slots: int,
        arounds: list[tuple[Around, Around]] | None = None,
    ) -> Float[Tensor, "rows blocks slots hidden"]:
        """Hidden states of teacher-forced blocks of ``slots`` inputs."""
        context = self.context(inputs.features, 0)
        rule = block_rule(inputs.anchors, length=inputs.length, slots=slots, window=self.shape.window)
        rows, queries = len(inputs.anchors), inputs.anchors.shape[1] * slots
        device = inputs.anchors.device
        # training on a GPU: most blocks of its masks are empty
        sparse = device.type == "cuda" and torch.is_grad_enabled() and self.shape.head_dim >= _FLEX_HEAD_DIM
        make_mask = block_mask if sparse else dense_mask
        visible = make_mask(rule, rows=rows, queries=queries, keys=inputs.length + queries, device=device)
        anchors = embedding[inputs.previous[:, :, 0]]
        return self.block(context, anchors, inputs.anchors, slots, visible, arounds)

    @property
    def _stack(self) -> list[BackboneLayer]:
        return [layer for layer in self.layers if isinstance(layer, BackboneLayer)]


@final
class BackboneLayer(nn.Module):
    """Attention over [context, block], then a gated MLP.

    Args:
        hidden_size: of the residual stream.
        shape: of the layer.
    """

    def __init__(self, hidden_size: int, shape: LayerShape) -> None:
        super().__init__()
        self.input_norm = nn.RMSNorm(hidden_size, eps=shape.norm_eps)
        self.attention = Attention(shape, input_size=hidden_size, hidden_size=hidden_size)
        self.mlp_norm = nn.RMSNorm(hidden_size, eps=shape.norm_eps)
        self.mlp = GatedMLP(hidden_size, shape.intermediate_size)

    def forward(
        self,
        states: Tensor,
        rotation: Rotation,
        context: KeysValues,
        visible: Tensor | BlockMask | None,
        around_attention: Around,
        around_mlp: Around,
    ) -> Tensor:
        """One layer."""

        def attend(normed: Tensor) -> Tensor:
            own = self.attention.keys_values(normed, rotation)
            attended: Tensor = self.attention(normed, rotation, [context, own], visible)
            return attended

        states = states + around_attention(self.input_norm(states), attend)
        return states + around_mlp(self.mlp_norm(states), self.mlp)


def _as_is(normed: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
    return sublayer(normed)


def block_rule(anchors: Int[Tensor, "rows blocks"], *, length: int, slots: int, window: int | None = None) -> MaskRule:
    """A slot reads the context strictly before its anchor, as far as its window reaches, and its own block.

    Args:
        anchors: of the blocks, whose slots are the queries.
        length: of the context, which stands before the slots among the keys.
        slots: of a block.
        window: see `LayerShape`.
    """

    def may_read(row: Tensor, query: Tensor, key: Tensor) -> Tensor:
        block = query // slots
        anchor = anchors[row, block]
        context = (key < length) & (key < anchor)
        if window is not None:
            context = context & (anchor + query % slots - key < window)
        return context | ((key >= length) & ((key - length) // slots == block))

    return may_read


class BackboneContext:
    """Keys and values of one request for every layer; nothing to roll back, since only committed tokens enter.

    Args:
        backbone: makes them.
        embedding: of the target.
    """

    def __init__(self, backbone: Backbone, embedding: Float[Tensor, "vocab hidden"]) -> None:
        self._backbone = backbone
        self._embedding = embedding
        self._layers: list[KeysValues] = []
        self.length = 0

    def extend(self, features: Float[Tensor, "length layers hidden"]) -> None:
        """Take in the features of committed tokens."""
        fresh = self._backbone.context(features[None], self.length)
        if self._layers:
            for layer, more in zip(self._layers, fresh, strict=True):
                layer.append(more)
        else:
            self._layers = fresh
        self.length += len(features)

    def block(
        self, anchor: int, slots: int, arounds: list[tuple[Around, Around]] | None = None
    ) -> Float[Tensor, "slots hidden"]:
        """Hidden states of the block anchored at ``anchor``."""
        window, position = self._backbone.shape.window, self.length
        context, visible = self._layers, None
        if window is not None and position >= window:
            # slot j looks back less than `window` positions, so slot 0 the farthest
            context = [layer.last(window - 1) for layer in self._layers]
            anchors = torch.tensor([[context[0].length]], device=self._embedding.device)
            rule = block_rule(anchors, length=context[0].length, slots=slots, window=window)
            visible = dense_mask(rule, rows=1, queries=slots, keys=context[0].length + slots, device=anchors.device)
        place = torch.full((1, 1), position, dtype=torch.int64, device=self._embedding.device)
        embedded = self._embedding[anchor].view(1, 1, -1)
        return self._backbone.block(context, embedded, place, slots, visible, arounds)[0, 0]
