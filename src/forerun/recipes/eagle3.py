"""EAGLE-3's published shapes, for any target."""

from __future__ import annotations

from forerun.drafters import Eagle3Config
from forerun.models import TransformersTarget
from forerun.recipes.drafter import common_fields, layer_of, spread_layers


def eagle3_for(
    target: TransformersTarget,
    *,
    block_size: int = 7,
    draft_vocab_size: int = 8192,
    fc_norm: bool = False,
    norm_output: bool = False,
    max_positions: int | None = None,
) -> Eagle3Config:
    """EAGLE-3 as first published: three features, a head of its own over a part of the vocabulary.

    Args:
        target: whose shapes are taken over.
        block_size: largest horizon, which is also the number of steps of training-time test.
        draft_vocab_size: cut to the target's vocabulary where that is smaller.
        fc_norm: a norm for each feature; EAGLE-3.1 has this and ``norm_output``.
        norm_output: feed the output back after the final norm.
        max_positions: ``None`` for the target's.
    """
    return Eagle3Config(
        **common_fields(target, block_size, draft_vocab_size, max_positions),
        captured_layers=low_middle_high_layers(target.num_layers),
        layer=layer_of(target, head_norms=False),
        own_head=True,
        norm_before_fc=False,
        fc_norm=fc_norm,
        norm_before_residual=False,
        norm_output=norm_output,
    )


def eagle3_deepspec_for(
    target: TransformersTarget, *, block_size: int = 7, max_positions: int | None = None
) -> Eagle3Config:
    """DeepSpec's EAGLE-3: five features, normalised queries and keys, the target's frozen head.

    Args:
        target: whose shapes are taken over; its whole vocabulary can be drafted.
        block_size: largest horizon.
        max_positions: ``None`` for the target's.
    """
    first = eagle3_for(target, block_size=block_size, draft_vocab_size=target.vocab_size, max_positions=max_positions)
    differing = {
        "captured_layers": spread_layers(target.num_layers),
        "layer": layer_of(target, head_norms=True),
        "own_head": False,
    }
    return first.model_copy(update=differing)


def low_middle_high_layers(num_layers: int) -> tuple[int, ...]:
    """EAGLE-3's three layers, or those of them that differ in a shallow target.

    EAGLE reads the *inputs* of layers 2, N // 2 and N - 3 counted from 0, which are the outputs of the layers before
    them: 1, N // 2 - 1 and N - 4.
    """
    outputs = (1, num_layers // 2 - 1, num_layers - 4)
    return tuple(sorted({min(max(layer, 0), num_layers - 1) for layer in outputs}))
