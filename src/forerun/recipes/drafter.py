"""Drafter shapes for a target, and the drafter that ships with the package."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal

from forerun.drafters import (
    DFlash2Config,
    DFlashConfig,
    DSparkConfig,
    LayerShape,
    MarkovKind,
    MaskTokenConfig,
    MedusaConfig,
    Rope,
)
from forerun.models import EMBEDDED_TARGET, TransformersTarget, find_sites

_CAPTURED_LAYERS = 5


def dspark_for(
    target: TransformersTarget,
    *,
    num_layers: int = 2,
    block_size: int = 7,
    markov_head: MarkovKind = "vanilla",
    markov_rank: int = 128,
    draft_vocab_size: int = 8192,
    max_positions: int | None = None,
) -> DSparkConfig:
    """DSpark with the target's own attention shape, reading five layers from the second to the third from last.

    Args:
        target: whose shapes are taken over.
        num_layers: of the backbone; DSpark's released drafters have five, a small CPU affords two.
        block_size: largest horizon.
        markov_head: vanilla, gated or rnn.
        markov_rank: of the Markov head.
        draft_vocab_size: cut to the target's vocabulary where that is smaller.
        max_positions: ``None`` for the target's.
    """
    return DSparkConfig(
        **common_fields(target, block_size, draft_vocab_size, max_positions),
        captured_layers=spread_layers(target.num_layers),
        num_layers=num_layers,
        layer=layer_of(target),
        markov_head=markov_head,
        markov_rank=markov_rank,
        confidence_head=True,
        confidence_reads_markov=True,
    )


def dflash_for(
    target: TransformersTarget,
    *,
    num_layers: int = 2,
    block_size: int = 7,
    window: int | None = None,
    draft_vocab_size: int = 8192,
    max_positions: int | None = None,
) -> DFlashConfig:
    """DFlash with the target's own attention shape; the released drafters have five layers and 15 drafts.

    Args:
        target: whose shapes are taken over.
        num_layers: of the backbone.
        block_size: drafts, the largest horizon; the anchor's slot comes on top.
        window: of the attention; ``None`` for none.
        draft_vocab_size: cut to the target's vocabulary where that is smaller.
        max_positions: ``None`` for the target's.
    """
    return DFlashConfig(
        **common_fields(target, block_size, draft_vocab_size, max_positions),
        captured_layers=spread_layers(target.num_layers),
        num_layers=num_layers,
        layer=layer_of(target, window=window),
    )


def dflash2_for(
    target: TransformersTarget,
    *,
    num_layers: int = 2,
    block_size: int = 7,
    window: int | None = None,
    convolution_group_size: int = 16,
    selector_rank: int = 128,
    candidates: int = 16,
    draft_vocab_size: int = 8192,
    max_positions: int | None = None,
) -> DFlash2Config:
    """DFlash2 with the target's own attention shape; the released drafters have five layers, 7 drafts and rank 256.

    Args:
        target: whose shapes are taken over.
        num_layers: of the backbone.
        block_size: drafts, the largest horizon; the anchor's slot comes on top.
        window: of the attention; ``None`` for none.
        convolution_group_size: channels that share a predicted correction; a hidden size that it does not divide gets
            their greatest common divisor.
        selector_rank: of the selector's codebooks.
        candidates: tokens that a draft is drawn from; cut to the draft vocabulary.
        draft_vocab_size: cut to the target's vocabulary where that is smaller.
        max_positions: ``None`` for the target's.
    """
    backbone = dflash_for(
        target,
        num_layers=num_layers,
        block_size=block_size,
        window=window,
        draft_vocab_size=draft_vocab_size,
        max_positions=max_positions,
    )
    return DFlash2Config(
        **backbone.model_dump(exclude={"architecture"}),
        convolution_group_size=math.gcd(convolution_group_size, target.hidden_size),
        selector_rank=selector_rank,
        candidates=min(candidates, backbone.draft_vocab_size),
    )


def medusa_for(
    target: TransformersTarget,
    *,
    block_size: int = 5,
    num_blocks: int = 1,
    own_heads: bool = True,
    draft_vocab_size: int = 8192,
    max_positions: int | None = None,
) -> MedusaConfig:
    """Medusa as published: five heads of one residual block, each with its own unembedding.

    Args:
        target: whose shapes are taken over.
        block_size: number of heads, which is the largest horizon.
        num_blocks: residual blocks of a head.
        own_heads: whether each head trains its own unembedding; otherwise all use the target's head.
        draft_vocab_size: cut to the target's vocabulary where that is smaller.
        max_positions: ``None`` for the target's.
    """
    return MedusaConfig(
        **common_fields(target, block_size, draft_vocab_size, max_positions),
        captured_layers=(target.num_layers - 1,),
        num_blocks=num_blocks,
        own_heads=own_heads,
    )


def mask_token_for(
    target: TransformersTarget,
    *,
    form: Literal["riders", "copy"] = "riders",
    block_size: int = 8,
    rank: int = 16,
    alpha: float = 32.0,
    modules: tuple[str, ...] = (),
) -> MaskTokenConfig:
    """A mask token that the target itself reads, or a copy of the target that drafts beside it.

    Args:
        target: to draft for.
        form: see :class:`MaskTokenConfig`.
        block_size: tokens predicted in one pass, 16 in the paper; riders cost a row for each of them and each draft.
        rank: of the low-rank updates.
        alpha: their scale is ``alpha / rank``.
        modules: last parts of the names of the linear layers to update; none for all.
    """
    riders = form == "riders"
    return MaskTokenConfig(
        **common_fields(target, block_size, target.vocab_size, None),
        form=form,
        rank=rank if riders else 0,
        alpha=alpha,
        sites=find_sites(target.layers, modules, target.smallest_pass) if riders else {},
    )


def common_fields(
    target: TransformersTarget, block_size: int, draft_vocab_size: int, max_positions: int | None
) -> dict[str, Any]:
    """Fields that every drafter beside this target has.

    Args:
        target: whose shapes are taken over.
        block_size: largest horizon.
        draft_vocab_size: cut to the target's vocabulary where that is smaller.
        max_positions: ``None`` for the target's.
    """
    return {
        "hidden_size": target.hidden_size,
        "target_vocab_size": target.vocab_size,
        "block_size": block_size,
        "draft_vocab_size": min(draft_vocab_size, target.vocab_size),
        "max_positions": target.max_positions if max_positions is None else max_positions,
    }


def layer_of(target: TransformersTarget, *, head_norms: bool = True, window: int | None = None) -> LayerShape:
    """A drafter layer with the target's own attention shape and positions.

    Args:
        target: whose shapes are taken over.
        head_norms: normalise queries and keys.
        window: of the attention; ``None`` for none.
    """
    shape = target.attention_shape
    return LayerShape(
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        intermediate_size=shape.intermediate_size,
        head_norms=head_norms,
        rope=Rope(inverse_frequencies=shape.rope.inverse_frequencies, attention_scaling=shape.rope.attention_scaling),
        norm_eps=1e-6,
        window=window,
    )


def embedded_drafter(target_name: str) -> Path | None:
    """Folder of the shipped drafter for the embedded target; ``None`` for any other."""
    folder = Path(__file__).parent / "assets" / "smollm2-135m-dspark"
    return folder if target_name == EMBEDDED_TARGET.name and folder.is_dir() else None


def spread_layers(num_layers: int) -> tuple[int, ...]:
    """Five layers from the second to the third from last, or as many as there are."""
    first, last = min(1, num_layers - 1), max(num_layers - 3, 0)
    if last <= first:
        return tuple(range(num_layers))[-_CAPTURED_LAYERS:]
    steps = [first + (last - first) * index / (_CAPTURED_LAYERS - 1) for index in range(_CAPTURED_LAYERS)]
    return tuple(sorted({round(step) for step in steps}))
