"""What every loss does to its inputs before its equation: check shapes, leave half precision."""

import torch
from jaxtyping import Float
from torch import Tensor

from forerun.errors import ForerunError


def widened(values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """The same values in the working precision: float64 stays, everything narrower becomes float32."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def aligned(
    target_log_probs: Float[Tensor, "*target_shape"], draft_logits: Float[Tensor, "*draft_shape"]
) -> tuple[Float[Tensor, "*target_shape"], Float[Tensor, "*draft_shape"]]:
    """Both tensors in one working precision, after checking that they describe the same positions and tokens.

    Raises:
        ForerunError: the shapes differ. Broadcasting is refused: a row used for two positions is a bug upstream.
    """
    if target_log_probs.shape != draft_logits.shape:
        raise ForerunError(
            f"target_log_probs {tuple(target_log_probs.shape)} and draft_logits {tuple(draft_logits.shape)} differ in "
            "shape; give the target's rows at the same positions and, for a pruned draft vocabulary, at its ids"
        )
    dtype = torch.promote_types(torch.promote_types(target_log_probs.dtype, draft_logits.dtype), torch.float32)
    return target_log_probs.to(dtype), draft_logits.to(dtype)


def check_beta(beta: float) -> None:
    """Refuse a discount exponent outside [0, 1], where D_beta is neither convex nor a bound.

    Raises:
        ForerunError: `beta` is outside [0, 1] or NaN.
    """
    if not 0.0 <= beta <= 1.0:
        raise ForerunError(f"beta is {beta}; the TVP family is defined for 0 <= beta <= 1")


def negligible(beta: float, dtype: torch.dtype) -> bool:
    """Whether the limit beta = 0 holds to the last digit: 1 - beta x rounds to 1 for every log-ratio x below 128 nats.

    The formula for beta > 0 would then divide two numbers that lose their digits or underflow.
    """
    return 128.0 * beta < torch.finfo(dtype).eps
