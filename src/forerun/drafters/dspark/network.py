"""DSpark's network: one function for training and decoding.

A block is the anchor (the last committed token) followed by ``block_size - 1`` mask slots. The slots of a block see
each other and the target's features of every position *before* the anchor, which enter each layer as extra keys and
values.
Slot j predicts the token j + 1 places after the anchor; a first-order Markov term adds what the token just before says.
(DSpark, arXiv 2607.05147, on the DFlash backbone, arXiv 2602.06036.)

Shapes: ``blocks`` anchors, each with ``slots`` = block_size inputs; ``context`` positions of target features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from forerun.drafters.dspark.config import DSparkConfig


@dataclass(frozen=True, slots=True)
class ContextLayer:
    """Keys (rotated) and values that one drafter layer made of the target's features."""

    keys: Float[Tensor, "batch kv_heads context head_dim"]
    values: Float[Tensor, "batch kv_heads context head_dim"]


@final
class DSparkNetwork(nn.Module):
    """Trainable part of the drafter. Embedding and head belong to the target and are passed in.

    Args:
        config: shapes.
    """

    def __init__(self, config: DSparkConfig) -> None:
        super().__init__()
        self.config = config
        hidden = config.hidden_size
        self.feature_projection = nn.Linear(len(config.captured_layers) * hidden, hidden, bias=False)
        self.feature_norm = nn.RMSNorm(hidden, eps=config.norm_eps)
        self.mask_embedding = nn.Parameter(torch.zeros(hidden))
        self.layers = nn.ModuleList(_Layer(config) for _ in range(config.num_layers))
        self.final_norm = nn.RMSNorm(hidden, eps=config.norm_eps)
        # one extra row for a preceding token outside the draft vocabulary
        self.markov_previous = nn.Embedding(config.draft_vocab_size + 1, config.markov_rank)
        self.markov_next = nn.Linear(config.markov_rank, config.draft_vocab_size, bias=False)
        self.confidence = nn.Linear(hidden + config.markov_rank, 1)

    def initialise(self, *, generator: torch.Generator, final_norm_weight: Float[Tensor, " hidden"]) -> None:
        """Draw the starting weights; the final norm starts as the target's, so that slots start in the head's language.

        Args:
            generator: source of every draw.
            final_norm_weight: of the target.
        """
        for name, parameter in self.named_parameters():
            if name.endswith("norm.weight"):
                nn.init.ones_(parameter)
            elif name.endswith("bias") or name == "markov_next.weight":
                nn.init.zeros_(parameter)  # the Markov term starts as no correction at all
            else:
                nn.init.normal_(parameter, std=0.02, generator=generator)
        with torch.no_grad():
            self.final_norm.weight.copy_(final_norm_weight)

    def context_layers(
        self, features: Float[Tensor, "batch context layers hidden"], first_position: int
    ) -> list[ContextLayer]:
        """Turn target features of consecutive positions into keys and values for every drafter layer.

        Args:
            features: outputs of the captured target layers.
            first_position: absolute position of the first of them.
        """
        context = self.feature_norm(self.feature_projection(features.flatten(start_dim=2)))
        positions = torch.arange(first_position, first_position + features.shape[1], device=features.device)
        rotation = _rotation(positions[None], self.config, features.dtype)
        return [layer.context(context, rotation) for layer in self._stack]

    def block_hidden(
        self,
        context: list[ContextLayer],
        anchor_embeddings: Float[Tensor, "batch blocks hidden"],
        anchor_positions: Int[Tensor, "batch blocks"],
        visible: Bool[Tensor, "batch queries keys"] | None,
    ) -> Float[Tensor, "batch blocks slots hidden"]:
        """Hidden states of every slot, ready for the target's head.

        Args:
            context: from ``context_layers``; positions before the anchors.
            anchor_embeddings: the target's input embeddings of the anchors.
            anchor_positions: absolute positions of the anchors.
            visible: which keys (context first, then all slots of all blocks) each slot may read; ``None`` when there is
                one block and the whole context lies before its anchor, as in decoding.
        """
        batch, blocks, hidden = anchor_embeddings.shape
        slots = self.config.block_size
        masks = self.mask_embedding.to(anchor_embeddings.dtype).expand(batch, blocks, slots - 1, hidden)
        states = torch.cat([anchor_embeddings[:, :, None], masks], dim=2).view(batch, blocks * slots, hidden)
        offsets = torch.arange(slots, device=anchor_positions.device)
        positions = (anchor_positions[:, :, None] + offsets).view(batch, blocks * slots)
        rotation = _rotation(positions, self.config, states.dtype)
        for layer, layer_context in zip(self._stack, context, strict=True):
            states = layer(states, layer_context, rotation, visible)
        normed: Tensor = self.final_norm(states)
        return normed.view(batch, blocks, slots, hidden)

    @property
    def _stack(self) -> list[_Layer]:
        return [layer for layer in self.layers if isinstance(layer, _Layer)]

    def markov_logits(self, previous: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch draft_vocab"]:
        """What the token just before adds to the logits; in draft numbering, ``draft_vocab_size`` for any other."""
        logits: Tensor = self.markov_next(self.markov_previous(previous))
        return logits

    def confidence_logits(
        self, hidden: Float[Tensor, "*batch hidden"], previous: Int[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch"]:
        """Log-odds that this slot's draft is accepted, from what is known before it is drawn."""
        logits: Tensor = self.confidence(torch.cat([hidden, self.markov_previous(previous)], dim=-1))
        return logits[..., 0]


@final
class _Layer(nn.Module):
    """Attention over [context, block] with normalised queries and keys, then a gated MLP."""

    def __init__(self, config: DSparkConfig) -> None:
        super().__init__()
        self.config = config
        hidden, heads, kv_heads, dim = config.hidden_size, config.num_heads, config.num_kv_heads, config.head_dim
        self.input_norm = nn.RMSNorm(hidden, eps=config.norm_eps)
        self.query = nn.Linear(hidden, heads * dim, bias=False)
        self.key = nn.Linear(hidden, kv_heads * dim, bias=False)
        self.value = nn.Linear(hidden, kv_heads * dim, bias=False)
        self.output = nn.Linear(heads * dim, hidden, bias=False)
        self.query_norm = nn.RMSNorm(dim, eps=config.norm_eps)
        self.key_norm = nn.RMSNorm(dim, eps=config.norm_eps)
        self.mlp_norm = nn.RMSNorm(hidden, eps=config.norm_eps)
        self.gate = nn.Linear(hidden, config.intermediate_size, bias=False)
        self.up = nn.Linear(hidden, config.intermediate_size, bias=False)
        self.down = nn.Linear(config.intermediate_size, hidden, bias=False)

    def context(self, inputs: Tensor, rotation: tuple[Tensor, Tensor]) -> ContextLayer:
        keys = _rotate(self.key_norm(self._heads(self.key(inputs))), rotation)
        return ContextLayer(keys=keys, values=self._heads(self.value(inputs)))

    def forward(
        self, states: Tensor, context: ContextLayer, rotation: tuple[Tensor, Tensor], visible: Tensor | None
    ) -> Tensor:
        normed = self.input_norm(states)
        queries = _rotate(self.query_norm(self._heads(self.query(normed))), rotation)
        own = self.context(normed, rotation)
        attended = functional.scaled_dot_product_attention(
            queries,
            torch.cat([context.keys, own.keys], dim=2),
            torch.cat([context.values, own.values], dim=2),
            attn_mask=None if visible is None else visible[:, None],
            enable_gqa=True,
        )
        states = states + self.output(attended.transpose(1, 2).flatten(start_dim=2))
        normed = self.mlp_norm(states)
        mixed: Tensor = self.down(functional.silu(self.gate(normed)) * self.up(normed))
        return states + mixed

    def _heads(self, flat: Tensor) -> Tensor:
        heads: Tensor = flat.unflatten(-1, (-1, self.config.head_dim))
        return heads.transpose(1, 2)  # (batch, heads, length, head_dim)


def _rotation(
    positions: Int[Tensor, "batch length"], config: DSparkConfig, dtype: torch.dtype
) -> tuple[Float[Tensor, "batch 1 length half"], Float[Tensor, "batch 1 length half"]]:
    """Cosines and sines of the rotary embedding, computed in float64 so that long positions stay exact."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float64, device=positions.device) / config.head_dim
    angles = positions[..., None].to(torch.float64) * config.rope_theta**-exponents
    return angles.cos().to(dtype)[:, None], angles.sin().to(dtype)[:, None]


def _rotate(heads: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    cosines, sines = rotation
    first, second = heads.chunk(2, dim=-1)
    return torch.cat([first * cosines - second * sines, second * cosines + first * sines], dim=-1)
