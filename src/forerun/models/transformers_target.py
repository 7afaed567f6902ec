"""Any decoder-only transformers model as a target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from forerun.errors import ForerunError
from forerun.models.attention_masks import additive
from forerun.models.batch_cache import BatchCache
from forerun.models.clock import Clock, clock_of
from forerun.models.extra_tokens import ExtraTokens
from forerun.models.grouped_attention import GROUPED
from forerun.models.joint_linear import join_linears
from forerun.models.model_parts import (
    decoder_layers,
    embedding_weight,
    final_norm,
    language_head,
    layer_types,
    stop_ids,
    weights_fingerprint,
)
from forerun.models.narrow_head import rows_of, with_module
from forerun.models.packed_linear import can_pack, pack_linears
from forerun.models.recorded_pass import PassOutputs, RecordedPasses, Recorder, cuda_graph
from forerun.models.rectangle import Rectangle, RowBlock
from forerun.models.rope_numbers import RopeNumbers, rope_numbers
from forerun.models.target import Block, Target, TargetCache, TargetStep, TeacherStep
from forerun.models.tokenizer import Tokenizer
from forerun.models.transformers_cache import TransformersBatch, TransformersCache

_FULL, _SLIDING, _CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
_MAX_RECORDED_WIDTH = 16
_MASKED_IMPLEMENTATIONS = ("sdpa", "eager", GROUPED)  # that take any mask


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionShape:
    """Attention and MLP sizes of a decoder layer, and its rotary embedding."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    rope: RopeNumbers


@final
class TransformersTarget(Target):
    """Adapter: embeddings, head (tied or not), final norm, captured layers and a cache, for any family.

    Args:
        model: a causal language model of transformers in evaluation mode.
        tokenizer: its tokenizer; ``None`` for models that read ids only (tests).
        name: what the user called it.
        optimize: make narrow passes fast: attention that copies no keys, linear layers packed where a CPU allows it,
            and on CUDA recordings (graphs).
        recorder: how to record narrow passes, for tests; ``optimize`` chooses it by the device.

    Raises:
        ForerunError: the model keeps a recurrent state or attends in chunks, or its layers or final norm cannot be
            found.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: Tokenizer | None,
        *,
        name: str,
        optimize: bool = False,
        recorder: Recorder | None = None,
    ) -> None:
        self._name = name
        self._config = model.config.get_text_config()
        kinds = set(layer_types(model))
        if model._is_stateful or not kinds <= {_FULL, _SLIDING, _CHUNKED}:
            raise ForerunError(
                f"{name}: recurrent models keep a state that cannot be rolled back; choose an attention-only model"
            )
        if _CHUNKED in kinds or self._config.to_dict().get("attention_chunk_size") is not None:
            raise ForerunError(
                f"{name}: attention in chunks is not supported; choose a model with full or sliding-window attention"
            )
        model.eval().requires_grad_(False)
        self.model = model
        self._tokenizer = tokenizer
        self.layers = decoder_layers(model, int(self._config.num_hidden_layers), name)
        self.final_norm = final_norm(model, name)
        self.embedding_weight: Float[Tensor, "vocab hidden"] = embedding_weight(model, name)
        head = language_head(model, name)
        self.head_weight: Float[Tensor, "vocab hidden"] = head.weight.detach()
        self._head_bias = None if head.bias is None else head.bias.detach()
        self._head_path = next(path for path, module in model.named_modules() if module is head)
        self.extra_tokens = ExtraTokens(self.vocab_size, model.get_input_embeddings(), self.layers)
        self._fingerprint = weights_fingerprint(model)
        self._stop_ids = stop_ids(model)
        self._dtype = self.embedding_weight.dtype
        self._layer_types = layer_types(model)
        self._window = self._config.to_dict().get("sliding_window")
        self._mask_kinds = sorted(set(self._layer_types)) or [_FULL if self._window is None else _SLIDING]
        self._takes_masks = (
            model._supports_attention_backend and self._config._attn_implementation in _MASKED_IMPLEMENTATIONS
        )
        if optimize and model._supports_attention_backend and self._config._attn_implementation == "sdpa":
            model.set_attn_implementation(GROUPED)
        self._recorder = recorder
        if optimize and self.device.type == "cuda" and model._can_compile_fullgraph and self._takes_masks:
            self._recorder = cuda_graph
        self.packed_linears = 0
        if optimize and can_pack(self._dtype, self.embedding_weight.device):
            self.packed_linears = join_linears(model, self.smallest_pass) + pack_linears(model)

    @torch.inference_mode()
    def smallest_pass(self) -> None:
        """One token, no cache: for those who watch the modules that a pass goes through."""
        self.model(input_ids=torch.zeros(1, 1, dtype=torch.int64, device=self.device), use_cache=False)

    @property
    def name(self) -> str:
        """What the user called it."""
        return self._name

    @property
    def tokenizer(self) -> Tokenizer:
        """The target's tokenizer.

        Raises:
            ForerunError: the target was built without one.
        """
        if self._tokenizer is None:
            raise ForerunError(f"{self._name} has no tokenizer; give token ids instead of text")
        return self._tokenizer

    @property
    def has_tokenizer(self) -> bool:
        """Whether text can go in and out."""
        return self._tokenizer is not None

    @property
    def vocab_size(self) -> int:
        """Width of the logits."""
        return int(self.head_weight.shape[0])

    @property
    def hidden_size(self) -> int:
        """Width of the residual stream."""
        return int(self._config.hidden_size)

    @property
    def attention_shape(self) -> AttentionShape:
        """Numbers of the target's own attention and MLP, resolved once for drafters that take them over."""
        config = self._config.to_dict()
        own_names = self._config.attribute_map  # GPT-2 says n_head

        def stored(name: str) -> Any:
            return config.get(own_names.get(name, name))

        heads = int(stored("num_attention_heads"))
        head_dim = int(stored("head_dim") or self.hidden_size // heads)
        return AttentionShape(
            num_heads=heads,
            num_kv_heads=int(stored("num_key_value_heads") or heads),
            head_dim=head_dim,
            intermediate_size=int(stored("intermediate_size") or 4 * self.hidden_size),
            rope=rope_numbers(self._config, head_dim),
        )

    @property
    def final_norm_weight(self) -> Float[Tensor, " hidden"]:
        """Of the norm before the head, in float32."""
        return dict(self.final_norm.named_parameters())["weight"].detach().float()

    @property
    def num_layers(self) -> int:
        """Decoder layers."""
        return len(self.layers)

    @property
    def max_positions(self) -> int:
        """Longest sequence in tokens."""
        return int(self._config.max_position_embeddings)

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Token ids that end an answer, from the generation configuration."""
        return self._stop_ids

    @property
    def dtype(self) -> torch.dtype:
        """Type of weights and features."""
        return self._dtype

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        return self.embedding_weight.device

    @property
    def clock(self) -> Clock:
        """The device's."""
        return clock_of(self.device)

    @property
    def fingerprint(self) -> str:
        """Hash of configuration and a fixed sample of every weight tensor."""
        return self._fingerprint

    def with_head_rows(self, token_ids: Int[Tensor, " kept"]) -> TransformersTarget:
        """See :class:`Target`; layers and embeddings are shared, the kept rows of the head are copied."""
        rows = rows_of(self.head_weight, self._head_bias, token_ids)
        view = with_module(self.model, self._head_path, rows)
        narrow = TransformersTarget(view, self._tokenizer, name=self._name, recorder=self._recorder)
        if self.packed_linears:
            narrow.packed_linears = pack_linears(view)  # all but the new head are packed already
        return narrow

    def new_batch(self) -> TransformersBatch:
        """A batch without rows."""
        inner = BatchCache(self.num_layers, static=self._recorder is not None)
        if self._recorder is None:
            return TransformersBatch(inner, self.device, None)

        def run(rectangle: Rectangle, captured: tuple[int, ...]) -> PassOutputs:
            return self._pass(rectangle, inner, captured, 0)

        return TransformersBatch(inner, self.device, RecordedPasses(run, self._recorder))

    @torch.inference_mode()
    def forward_batch(
        self, blocks: Sequence[Block], *, captured: tuple[int, ...] = (), num_logits: int | None = None
    ) -> list[TargetStep]:
        """See :class:`Target`."""
        caches = [_own(block.cache) for block in blocks]
        batch = caches[0].batch
        block_of_row = {cache.row: block for cache, block in zip(caches, blocks, strict=True)}
        assert len(block_of_row) == len(blocks), "blocks are of different rows of one batch"
        width = max(len(block.token_ids) for block in blocks)
        recorded = batch.recorded if batch.inner.started and width <= _MAX_RECORDED_WIDTH else None
        first = 0 if recorded is not None else min(block_of_row)
        rows = batch.rows[first : max(block_of_row) + 1]
        batch.inner.reserve_slots(max(row.length for row in rows) + width)
        rectangle = Rectangle.of(
            [_row_block(row, block_of_row.get(row.row)) for row in rows],
            first_row=first,
            device=self.device,
            num_slots=None if recorded is None else batch.inner.num_slots,
            extra_ids=self.extra_tokens.among(block.token_ids for block in blocks),
        )
        if recorded is not None:
            outputs = recorded(rectangle, captured, cache_shape=batch.inner.shape)
        else:
            outputs = self._pass(
                rectangle, batch.inner, captured, rectangle.wanted(num_logits, may_wait=self.device.type == "cpu")
            )
        logits_of_rows = rectangle.logits_of_rows(outputs.logits, num_logits)
        steps = []
        for cache, block in zip(caches, blocks, strict=True):
            row, length = cache.row - first, len(block.token_ids)
            cache.extend(length)
            steps.append(TargetStep(logits=logits_of_rows[row], features=outputs.features[row, :length]))
        return steps

    def _pass(
        self, rectangle: Rectangle, cache: BatchCache, captured: tuple[int, ...], wanted: int | Tensor
    ) -> PassOutputs:
        cache.open(rectangle.window)
        reading = self.extra_tokens.reading(rectangle.token_ids, rectangle.extra_ids)
        with self.capture(captured) as outputs, reading as token_ids:
            logits = self.model(
                input_ids=token_ids,
                attention_mask=self._attention_mask(rectangle),
                position_ids=rectangle.positions,
                cache=cache,
                use_cache=True,
                logits_to_keep=wanted,
            ).logits
        return PassOutputs(logits=logits, features=self._stacked(outputs, captured, rectangle.token_ids))

    def _stacked(
        self, outputs: dict[int, Tensor], captured: tuple[int, ...], token_ids: Int[Tensor, "rows width"]
    ) -> Float[Tensor, "rows width layers hidden"]:
        if captured:
            return torch.stack([outputs[layer] for layer in captured], dim=2)
        return self.embedding_weight.new_empty((*token_ids.shape, 0, self.hidden_size))

    def forward_visible(
        self,
        token_ids: Int[Tensor, "rows width"],
        positions: Int[Tensor, "rows width"],
        visible: Bool[Tensor, "rows width width"],
        *,
        num_logits: int,
    ) -> Float[Tensor, "rows num_logits vocab"]:
        """One pass without a cache in which the caller says who sees whom; gradients flow where they are enabled.

        Args:
            token_ids: whole sequences.
            positions: of every token in its sequence.
            visible: for each token those that it sees, itself among them; sliding windows cut them as in any pass.
            num_logits: how many of each row's last tokens are wanted.
        """
        extra_ids = self.extra_tokens.among([token_ids])
        rectangle = Rectangle.without_cache(token_ids, positions, visible, extra_ids=extra_ids)
        with self.extra_tokens.reading(token_ids, extra_ids) as known_ids:
            logits: Tensor = self.model(
                input_ids=known_ids,
                attention_mask=self._attention_mask(rectangle),
                position_ids=positions,
                use_cache=False,
                logits_to_keep=num_logits,
            ).logits
        return logits

    def _attention_mask(self, rectangle: Rectangle) -> Tensor | dict[str, Tensor] | None:
        """As transformers' own ``generate`` prepares masks: one for each kind of layer, or one for all."""
        if rectangle.slots is None:
            return None
        if not self._takes_masks:
            raise ForerunError(
                f"{self._name}: this model's attention takes no masks, which batches and trees need; "
                "decode one request at a time, with drafts in a chain"
            )
        masks = {kind: self._mask(rectangle, self._window if kind == _SLIDING else None) for kind in self._mask_kinds}
        return masks if self._layer_types else masks[self._mask_kinds[0]]

    def _mask(self, rectangle: Rectangle, window: int | None) -> Tensor:
        mask = rectangle.mask(window)
        return additive(mask, self._dtype) if self._config._attn_implementation == "eager" else mask

    @torch.inference_mode()
    def teach(self, token_ids: Int[Tensor, " length"], *, captured: tuple[int, ...]) -> TeacherStep:
        """Everything that training a drafter needs from one sequence, in one pass without a cache.

        Args:
            token_ids: prompt and answer.
            captured: decoder layers whose outputs are wanted.
        """
        final: list[Tensor] = []
        handle = self.final_norm.register_forward_hook(lambda _module, _inputs, output: final.append(output))
        try:
            with self.capture(captured) as outputs:
                logits = self.model(input_ids=token_ids[None], use_cache=False).logits[0]
        finally:
            handle.remove()
        features = self._stacked(outputs, captured, token_ids[None])[0]
        return TeacherStep(logits=logits, features=features, final_hidden=final[0][0])

    @contextmanager
    def capture(self, captured: tuple[int, ...]) -> Iterator[dict[int, Float[Tensor, "batch length hidden"]]]:
        """Collect the outputs of decoder layers while the block runs; the dictionary fills during the forward pass."""
        outputs: dict[int, Tensor] = {}

        def keep_output(layer: int) -> Any:
            def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
                outputs[layer] = output[0] if isinstance(output, tuple) else output  # some families return tuples

            return hook

        handles = [self.layers[layer].register_forward_hook(keep_output(layer)) for layer in captured]
        try:
            yield outputs
        finally:
            for handle in handles:
                handle.remove()


def _own(cache: TargetCache) -> TransformersCache:
    assert isinstance(cache, TransformersCache), "a cache belongs to the target that made it"
    return cache


def _row_block(cache: TransformersCache, block: Block | None) -> RowBlock:
    if block is None:
        return RowBlock(start=cache.length, token_ids=torch.empty(0, dtype=torch.int64), parents=None)
    return RowBlock(start=cache.length, token_ids=block.token_ids, parents=block.parents)
