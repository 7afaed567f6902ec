"""EAGLE-3: one decoder layer that feeds its own output back, from draft to draft (arXiv 2503.01840).

The target's features of a token, from low, middle and high layers, become one vector g. The layer reads pairs
(g of token i, embedding of token i + 1) at position i; what it gives predicts token i + 2. A block anchored at a begins
with the pair (g of a - 1, embedding of a). In later slots the layer's own output for the slot before stands in place of
g, next to the embedding of the draft; positions go on.

Keys of known pairs depend on the pair alone, since there is one layer. So training makes them once for a whole row, and
then runs the slots of all blocks one after another on the layer's own outputs: training-time test. Its mask lets a slot
read the known pairs up to its block's first ("causal on the keys of step 1") and the earlier slots of its own block
("diagonal on the keys of later steps"), which is what decoding has.

Two published shapes differ in flags alone, which are therefore all written down: EAGLE-3 as in SGLang, vLLM and
SpecForge (three features, pruned head of its own), and DeepSpec's (five features, the target's frozen head over the
whole vocabulary, normalised queries and keys).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, final

import torch
from jaxtyping import Bool, Float, Int
from pydantic import model_validator
from torch import Tensor, nn

from forerun.drafters.attention import KeysValues, LayerShape
from forerun.drafters.block_inputs import BlockInputs
from forerun.drafters.config import DrafterConfig
from forerun.drafters.declarations import Dependence, Need, Saving
from forerun.drafters.draft_vocabulary import DraftVocabulary
from forerun.drafters.eagle3_layer import Eagle3Layer, FeatureNorm, slot_visibility
from forerun.drafters.network import Borrowed, DraftContext, DraftNetwork, DraftStates, Head, OpenBlock
from forerun.drafters.starting_weights import draw_weights
from forerun.models import TransformersTarget


@final
class Eagle3Config(DrafterConfig):
    """Shape of the network and of what it reads from its target.

    Attributes:
        layer: sizes of the decoder layer.
        own_head: a trained matrix over the draft vocabulary; else the target's head, which stays as it is.
        norm_before_fc: one norm over all features together, before they are mixed (gpt-oss drafters).
        fc_norm: one norm for each feature, before they are mixed (EAGLE-3.1).
        norm_before_residual: the residual stream begins after the norm of g, not before it (vLLM's flag).
        norm_output: what is fed back is the output after the final norm, not before it (EAGLE-3.1).
    """

    architecture: Literal["eagle3"] = "eagle3"
    layer: LayerShape
    own_head: bool
    norm_before_fc: bool
    fc_norm: bool
    norm_before_residual: bool
    norm_output: bool

    @model_validator(mode="after")
    def _features_are_normed_once(self) -> Eagle3Config:
        if self.norm_before_fc and self.fc_norm:
            raise ValueError(
                "norm_before_fc and fc_norm exclude each other: one norm for all features, or one for each"
            )
        return self


@final
class Eagle3Network(DraftNetwork):
    """Trainable part of the drafter.

    Args:
        config: shapes.
    """

    def __init__(self, config: Eagle3Config) -> None:
        super().__init__()
        self._config = config
        hidden, features, eps = config.hidden_size, len(config.captured_layers), config.layer.norm_eps
        if config.norm_before_fc:
            self.joint_feature_norm = nn.RMSNorm(features * hidden, eps=eps)
        if config.fc_norm:
            self.each_feature_norm = FeatureNorm(features, hidden, eps)
        self.feature_projection = nn.Linear(features * hidden, hidden, bias=False)
        self.layer = Eagle3Layer(config.layer, hidden, norm_before_residual=config.norm_before_residual)
        self.final_norm = nn.RMSNorm(hidden, eps=eps)
        if config.own_head:
            self.head = nn.Parameter(torch.zeros(config.draft_vocab_size, hidden))

    @property
    def config(self) -> Eagle3Config:
        """Shapes."""
        return self._config

    @property
    def needs(self) -> frozenset[Need]:
        """The head only where there is none of its own."""
        common = {Need.FEATURES, Need.EMBEDDING}
        return frozenset(common if self._config.own_head else common | {Need.HEAD})

    dependence = Dependence.FULL
    prefix_consistent = True
    saving = Saving.BOTH

    def initialise(
        self, target: TransformersTarget, vocabulary: DraftVocabulary, *, generator: torch.Generator
    ) -> None:
        """Head and final norm begin as the target's, so that the layer learns to speak before the head does."""
        draw_weights(self, generator=generator)
        with torch.no_grad():
            self.final_norm.weight.copy_(target.final_norm_weight)
            if self._config.own_head:
                self.head.copy_(target.head_weight[vocabulary.target_ids.to(target.device)])

    def head_weights(self, borrowed: Borrowed) -> tuple[Float[Tensor, "draft_vocab _"], ...]:
        """One: its own or the target's."""
        return (self.head if self._config.own_head else borrowed.head,)

    def fuse(self, features: Float[Tensor, "batch length layers hidden"]) -> Float[Tensor, "batch length hidden"]:
        """One vector g out of each token's features."""
        each = self.each_feature_norm(features) if self._config.fc_norm else features
        joint = each.flatten(start_dim=2)
        if self._config.norm_before_fc:
            joint = self.joint_feature_norm(joint)
        mixed: Tensor = self.feature_projection(joint)
        return mixed

    def known_keys(
        self,
        fused: Float[Tensor, "batch length hidden"],
        following: Float[Tensor, "batch length hidden"],
        first_position: int,
    ) -> KeysValues:
        """Keys and values of pairs whose features are the target's.

        Args:
            fused: of tokens that follow one another.
            following: embeddings of the tokens one later.
            first_position: of the first of ``fused``.
        """
        places = torch.arange(first_position, first_position + fused.shape[1], device=fused.device)
        read, _ = self.layer.inputs(fused, following)
        return self.layer.attention.keys_values(read, self._config.layer.rope.rotation(places[None], fused.dtype))

    def output(
        self, states: Float[Tensor, "*batch hidden"]
    ) -> tuple[Float[Tensor, "*batch hidden"], Float[Tensor, "*batch hidden"]]:
        """What the head reads, and what the next slot gets in place of g."""
        final_states: Tensor = self.final_norm(states)
        return final_states, final_states if self._config.norm_output else states

    def teach(self, inputs: BlockInputs, borrowed: Borrowed) -> DraftStates:
        """See :class:`DraftNetwork`; a row has at least two tokens, as it has an anchor and a label."""
        embedding, rope = borrowed.embedding, self._config.layer.rope
        fused = self.fuse(inputs.features[:, :-1])
        known = self.known_keys(fused, embedding[inputs.token_ids[:, 1:]], 0)
        first = (inputs.anchors - 1).clamp(min=0)  # blocks that only fill the shape have anchor 0
        hidden = fused.gather(1, first[..., None].expand(-1, -1, fused.shape[-1]))
        parts, slots = [known], []
        for slot in range(inputs.slots):
            read, residual = self.layer.inputs(hidden, embedding[inputs.previous[:, :, slot]])
            rotation = rope.rotation(first + slot, hidden.dtype)
            if slot > 0:  # the pair of slot 0 is a known one
                parts.append(self.layer.attention.keys_values(read, rotation))
            visible = slot_visibility(first, slot=slot, length=known.length, window=self._config.layer.window)
            final_states, hidden = self.output(self.layer(read, residual, rotation, parts, visible))
            slots.append(final_states)
        return DraftStates(terms=(torch.stack(slots, dim=2),))

    def new_context(self, borrowed: Borrowed, heads: Sequence[Head]) -> Eagle3Context:
        """See :class:`DraftNetwork`."""
        return Eagle3Context(self, borrowed, heads[0])


@final
class Eagle3Context(DraftContext):
    """Keys and values of one request's pairs; the last token's pair waits for the token after it.

    Keys of drafts stand behind those of the committed pairs until the next block opens or tokens come in; committed
    tokens come back with the target's own features.

    Args:
        network: of the drafter.
        borrowed: of the target.
        head: as a function.
    """

    def __init__(self, network: Eagle3Network, borrowed: Borrowed, head: Head) -> None:
        self._network, self._embedding, self._head = network, borrowed.embedding, head
        shape = network.config.layer
        nothing = self._embedding.new_empty(1, shape.num_kv_heads, 0, shape.head_dim)
        self._keys = KeysValues(nothing, nothing)
        self._last: Float[Tensor, "1 at_most_one hidden"] = self._embedding.new_empty(1, 0, network.config.hidden_size)
        self._length = 0

    @property
    def length(self) -> int:
        """Tokens taken in."""
        return self._length

    @property
    def device(self) -> torch.device:
        """Where it lives."""
        return self._embedding.device

    @property
    def num_pairs(self) -> int:
        """Committed pairs; the next one belongs to the anchor."""
        return max(self._length - 1, 0)

    @property
    def num_keys(self) -> int:
        """Of committed pairs and of drafts so far."""
        return self._keys.length

    def extend(self, token_ids: Int[Tensor, " length"], features: Float[Tensor, "length layers hidden"]) -> None:
        """See :class:`DraftContext`."""
        self._keys.cut(self.num_pairs)
        fused = torch.cat([self._last, self._network.fuse(features[None])], dim=1)
        complete = fused.shape[1] - 1
        if complete:
            following = self._embedding[token_ids[len(token_ids) - complete :]]
            self._keys.append(self._network.known_keys(fused[:, :-1], following[None], self.num_pairs))
        self._last = fused[:, -1:]
        self._length += len(token_ids)

    def open(self, anchor: int, horizon: int) -> Eagle3Block:
        """See :class:`DraftContext`."""
        return Eagle3Block(self, anchor)

    def begin(self, anchor: int) -> tuple[Float[Tensor, "1 draft_vocab"], Float[Tensor, "1 hidden"]]:
        """Slot 0; drops the keys of the drafts of another round. Returns as ``step`` does."""
        self._keys.cut(self.num_pairs)
        return self.step(self._last[0], torch.tensor([anchor]), 0)

    def step(
        self,
        hidden: Float[Tensor, "nodes hidden"],
        token_ids: Int[Tensor, " nodes"],
        slot: int,
        visible: Bool[Tensor, "nodes keys"] | None = None,
    ) -> tuple[Float[Tensor, "nodes draft_vocab"], Float[Tensor, "nodes hidden"]]:
        """Drafts at one depth: adds their keys, one for each, and looks back.

        Args:
            hidden: what ``step`` gave for the slot before.
            token_ids: the drafts of that slot.
            slot: their depth.
            visible: keys that each may read, its own included; ``None`` for a chain, which reads all in its window.

        Returns:
            Logits, and what the next slot gets in place of g.
        """
        network, device = self._network, self.device
        shape = network.config.layer
        read, residual = network.layer.inputs(hidden[None], self._embedding[token_ids.to(device)][None])
        places = torch.full((1, len(token_ids)), self.num_pairs + slot, device=device)
        rotation = shape.rope.rotation(places, hidden.dtype)
        self._keys.append(network.layer.attention.keys_values(read, rotation))
        keys = self._keys if visible is not None or shape.window is None else self._keys.last(shape.window)
        mask = None if visible is None else visible[None]
        final_states, following = network.output(network.layer(read, residual, rotation, [keys], mask))
        return self._head(final_states[0]), following[0]


@final
class Eagle3Block(OpenBlock):
    """A chain of drafts.

    Args:
        context: of the request; holds the keys.
        anchor: token before the first slot.
    """

    def __init__(self, context: Eagle3Context, anchor: int) -> None:
        self._context, self._anchor = context, anchor
        self._hidden: Tensor | None = None

    def logits(self, drafted: Int[Tensor, " drafted"]) -> Float[Tensor, " draft_vocab"]:
        """See :class:`OpenBlock`."""
        if self._hidden is None:
            logits, self._hidden = self._context.begin(self._anchor)
        else:
            logits, self._hidden = self._context.step(self._hidden, drafted[-1:], len(drafted))
        return logits[0]
