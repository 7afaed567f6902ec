"""Shape of parallel heads for a target."""

from __future__ import annotations

from forerun.drafters import ParallelHeadsConfig, can_start_as_last_layer
from forerun.models import TransformersTarget
from forerun.recipes.drafter import common_fields, layer_of


def parallel_heads_for(
    target: TransformersTarget,
    *,
    block_size: int = 4,
    window: int | None = None,
    draft_vocab_size: int = 8192,
    max_positions: int | None = None,
) -> ParallelHeadsConfig:
    """Four heads, as published, on the output of the layer before the last one.

    They begin as copies of the last layer where that is a layer of their kind, with normalised queries and keys or
    without, and at random otherwise.

    Args:
        target: whose shapes are taken over.
        block_size: number of heads, which is the largest horizon.
        window: of the attention; ``None`` for none.
        draft_vocab_size: cut to the target's vocabulary where that is smaller.
        max_positions: ``None`` for the target's.
    """
    shapes = [layer_of(target, head_norms=head_norms, window=window) for head_norms in (False, True)]
    fitting = [shape for shape in shapes if can_start_as_last_layer(shape, target)]
    return ParallelHeadsConfig(
        **common_fields(target, block_size, draft_vocab_size, max_positions),
        captured_layers=(max(target.num_layers - 2, 0),),
        layer=fitting[0] if fitting else shapes[0],
        start="last_layer" if fitting else "random",
    )
