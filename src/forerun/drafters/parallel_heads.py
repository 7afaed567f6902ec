"""Multi-token prediction with parallel heads: one transformer layer each, on a state inside the target.

Head i reads the outputs of one target layer, the trunk, at all tokens before the anchor; its query stands at the last
of them. Behind every head stand the target's final norm and head. (Better and faster large language models via
multi-token prediction, arXiv 2404.19737: there trunk and heads are one model and head 0 says the next token; here the
target is frozen, its own last layers say that token, and head i says the one i + 2 places after its query: i + 1 after
the anchor, which it never reads.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from forerun.drafters.attention import Attention, GatedMLP, KeysValues, LayerShape, within
from forerun.drafters.block_inputs import BlockInputs
from forerun.drafters.config import DrafterConfig, OneLayer
from forerun.drafters.declarations import Need
from forerun.drafters.draft_vocabulary import DraftVocabulary
from forerun.drafters.independent import IndependentNetwork
from forerun.drafters.network import Borrowed, DraftContext, Head, KnownBlock
from forerun.drafters.starting_weights import draw_weights
from forerun.errors import ForerunError
from forerun.models import TransformersTarget

_NAMES = {
    "input_norm": "input_layernorm",
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.output": "self_attn.o_proj",
    "attention.query_norm": "self_attn.q_norm",
    "attention.key_norm": "self_attn.k_norm",
    "mlp_norm": "post_attention_layernorm",
    "mlp.gate": "mlp.gate_proj",
    "mlp.up": "mlp.up_proj",
    "mlp.down": "mlp.down_proj",
}
_CHECKED_TOKENS = 8
_COPY_TOLERANCE = 0.05  # of what the layer adds: bfloat16 targets stay below it, layers of another kind do not


@final
class ParallelHeadsConfig(DrafterConfig):
    """Shape of the heads; there are ``block_size`` of them.

    Attributes:
        captured_layers: the trunk, one layer.
        layer: of a head.
        start: how heads begin: as copies of the target's last layer, or at random.
    """

    architecture: Literal["parallel_heads"] = "parallel_heads"
    captured_layers: OneLayer
    layer: LayerShape
    start: Literal["last_layer", "random"]


@final
class HeadLayer(nn.Module):
    """A transformer layer whose queries are some of its positions.

    Args:
        hidden_size: of the residual stream.
        shape: of the layer.
    """

    def __init__(self, hidden_size: int, shape: LayerShape) -> None:
        super().__init__()
        self.shape = shape
        self.input_norm = nn.RMSNorm(hidden_size, eps=shape.norm_eps)
        self.attention = Attention(shape, input_size=hidden_size, hidden_size=hidden_size)
        self.mlp_norm = nn.RMSNorm(hidden_size, eps=shape.norm_eps)
        self.mlp = GatedMLP(hidden_size, shape.intermediate_size)

    def memory(self, trunk: Float[Tensor, "batch length hidden"], first_position: int) -> KeysValues:
        """Keys and values of consecutive positions."""
        positions = torch.arange(first_position, first_position + trunk.shape[1], device=trunk.device)
        return self.attention.keys_values(
            self.input_norm(trunk), self.shape.rope.rotation(positions[None], trunk.dtype)
        )

    def forward(
        self,
        trunk: Float[Tensor, "batch queries hidden"],
        positions: Int[Tensor, "batch queries"],
        memory: KeysValues,
        visible: Bool[Tensor, "batch queries keys"] | None,
    ) -> Float[Tensor, "batch queries hidden"]:
        """Outputs at the queries.

        Args:
            trunk: states there.
            positions: of the queries.
            memory: of the positions that can be looked at, those of the queries among them.
            visible: which of these each query reads; ``None`` for all.
        """
        rotation = self.shape.rope.rotation(positions, trunk.dtype)
        states = trunk + self.attention(self.input_norm(trunk), rotation, [memory], visible)
        changed: Tensor = states + self.mlp(self.mlp_norm(states))
        return changed


@final
class ParallelHeadsNetwork(IndependentNetwork):
    """Trainable part of the drafter: the heads.

    Args:
        config: shapes.
    """

    needs = frozenset({Need.FEATURES, Need.FINAL_NORM, Need.HEAD})

    def __init__(self, config: ParallelHeadsConfig) -> None:
        super().__init__()
        self._config = config
        self.heads = nn.ModuleList(HeadLayer(config.hidden_size, config.layer) for _ in range(config.block_size))

    @property
    def config(self) -> ParallelHeadsConfig:
        """Shapes."""
        return self._config

    @property
    def layers(self) -> list[HeadLayer]:
        """The heads, in order."""
        return [head for head in self.heads if isinstance(head, HeadLayer)]

    def initialise(
        self, target: TransformersTarget, vocabulary: DraftVocabulary, *, generator: torch.Generator
    ) -> None:
        """Heads begin as configured.

        Raises:
            ForerunError: the target's last layer is of another kind than a head.
        """
        draw_weights(self, generator=generator)
        if self._config.start == "last_layer":
            for layer in self.layers:
                copy_last_layer(layer, target)

    def head_weights(self, borrowed: Borrowed) -> tuple[Float[Tensor, "draft_vocab hidden"], ...]:
        """The target's head."""
        return (borrowed.head,)

    def slot_states(self, inputs: BlockInputs, borrowed: Borrowed, slot: int) -> Float[Tensor, "rows blocks hidden"]:
        """See :class:`IndependentNetwork`."""
        trunk, places = inputs.features[:, :, 0], inputs.before_anchors
        keys = torch.arange(inputs.length, device=places.device)
        visible = (keys <= places[:, :, None]) & within(self._config.layer.window, places, keys.expand(len(places), -1))
        queries = trunk.gather(1, places[:, :, None].expand(-1, -1, trunk.shape[2]))
        layer = self.layers[slot]
        states: Tensor = borrowed.final_norm(layer(queries, places, layer.memory(trunk, 0), visible))
        return states

    def new_context(self, borrowed: Borrowed, heads: Sequence[Head]) -> ParallelHeadsContext:
        """See :class:`DraftNetwork`."""
        return ParallelHeadsContext(self, borrowed, heads)


@final
class ParallelHeadsContext(DraftContext):
    """Every head's keys and values of the committed tokens, and the trunk's state at the last of them.

    Only committed tokens enter, so nothing is ever rolled back; heads beyond a round's horizon still take them in,
    since a later round may ask for them.
    """

    def __init__(self, network: ParallelHeadsNetwork, borrowed: Borrowed, heads: Sequence[Head]) -> None:
        self._network, self._borrowed, self._heads = network, borrowed, heads
        self._layers = network.layers
        self._memories: list[KeysValues] = []
        self._trunk = borrowed.head.new_zeros(1, 1, network.config.hidden_size)
        self._length = 0

    @property
    def length(self) -> int:
        """Tokens taken in."""
        return self._length

    def extend(self, token_ids: Int[Tensor, " length"], features: Float[Tensor, "length layers hidden"]) -> None:
        """See :class:`DraftContext`."""
        trunk = features[None, :, 0]
        fresh = [layer.memory(trunk, self._length) for layer in self._layers]
        if self._memories:
            for memory, more in zip(self._memories, fresh, strict=True):
                memory.append(more)
        else:
            self._memories = fresh
        self._trunk = trunk[:, -1:]
        self._length += len(features)

    def open(self, anchor: int, horizon: int) -> KnownBlock:
        """See :class:`DraftContext`."""
        window = self._network.config.layer.window
        place = torch.full((1, 1), self._length - 1, dtype=torch.int64, device=self._trunk.device)
        states = []
        for layer, memory in zip(self._layers[:horizon], self._memories, strict=False):
            seen = memory if window is None else memory.last(window)
            states.append(layer(self._trunk, place, seen, None)[0, 0])
        return self._network.known_block(self._borrowed.final_norm(torch.stack(states)), self._heads)


def copy_last_layer(layer: HeadLayer, target: TransformersTarget) -> None:
    """Give a head the weights of the target's last layer, and check on a few tokens that it computes the same.

    Raises:
        ForerunError: tensors of the layer have other names or shapes, or the same ones mean something else (norms
            around a whole sublayer, another activation, scaled residuals).
    """
    if target.num_layers < 2:
        raise ForerunError(_refusal(target, "it has one layer, and heads read the one before the last"))
    last = target.layers[target.num_layers - 1]
    theirs = {name: value.detach().float().cpu() for name, value in last.named_parameters()}
    named = {f"{_NAMES[name.removesuffix('.weight')]}.weight": weight for name, weight in layer.named_parameters()}
    if {name: value.shape for name, value in theirs.items()} != {name: weight.shape for name, weight in named.items()}:
        raise ForerunError(_refusal(target, _different(theirs, named)))
    with torch.no_grad():
        for name, weight in named.items():
            weight.copy_(theirs[name])
    token_ids = torch.arange(_CHECKED_TOKENS, device=target.device) * 37 % target.vocab_size
    features = target.teach(token_ids, captured=(target.num_layers - 2, target.num_layers - 1)).features.float().cpu()
    trunk, expected = features[None, :, 0], features[None, :, 1]
    places = torch.arange(_CHECKED_TOKENS)
    with torch.no_grad():
        found = layer(trunk, places[None], layer.memory(trunk, 0), (places <= places[:, None])[None])
    if not float((found - expected).norm() / (expected - trunk).norm()) < _COPY_TOLERANCE:
        raise ForerunError(_refusal(target, "it computes something else from the same weights"))


def can_start_as_last_layer(shape: LayerShape, target: TransformersTarget) -> bool:
    """Whether a head of this shape can be a copy of the target's last layer."""
    try:
        copy_last_layer(HeadLayer(target.hidden_size, shape), target)
    except ForerunError:
        return False
    return True


def _different(theirs: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> str:
    names: Iterable[str] = sorted(theirs.keys() ^ own.keys())
    return f"tensors differ: {', '.join(names) or 'their shapes'}"


def _refusal(target: TransformersTarget, why: str) -> str:
    return f"heads cannot begin as the last layer of {target.name} ({why}); set start to random"
