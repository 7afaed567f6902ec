"""Losses from hidden states and heads, without a tensor of positions x vocabulary.

Logits are recomputed and used up chunk by chunk; value and gradient are those of the eager losses, which stay as the
reference. `fused_values` gives one value per position, `fused_sum` their weighted sum with the gradients of trainable
heads in the same pass.
"""

from forerun.losses.divergence import Divergence
from forerun.losses.fused.laws import InexactTarget, Projection, TargetStates, TopKTarget
from forerun.losses.fused.loss import DEFAULT_CHUNK, FusedRows, FusedSum, fused_sum, fused_values

__all__ = [
    "DEFAULT_CHUNK",
    "Divergence",
    "FusedRows",
    "FusedSum",
    "InexactTarget",
    "Projection",
    "TargetStates",
    "TopKTarget",
    "fused_sum",
    "fused_values",
]
