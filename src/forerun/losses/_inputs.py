"""What every loss does to its inputs before its equation: check shapes, leave half precision."""

import math
from typing import Final

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from forerun.errors import ForerunError

LOG_RATIO_FLOOR: Final = -149.0 * math.log(2.0)
"""The acceptance ratio draft/target counts as at least 2**-149 (about -103.3 nats), the smallest positive float32."""


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


def check_labels(labels: Int64[Tensor, "*label_shape"], draft_logits: Float[Tensor, "*draft_shape"]) -> None:
    """Refuse labels that do not describe the positions of the logits.

    Raises:
        ForerunError: there is not exactly one label per row.
    """
    if labels.shape != draft_logits.shape[:-1]:
        raise ForerunError(
            f"labels {tuple(labels.shape)} do not match draft_logits {tuple(draft_logits.shape)}: one label per row"
        )


def label_log_probs(
    labels: Int64[Tensor, "*batch"], draft_logits: Float[Tensor, "*batch vocab"]
) -> Float[Tensor, "*batch"]:
    """The draft's log-probability of each label, `-inf` without gradient for a label outside its vocabulary.

    Raises:
        ForerunError: there is not exactly one label per row.
    """
    check_labels(labels, draft_logits)
    draft_log_probs = torch.log_softmax(widened(draft_logits), dim=-1)
    # A row without a label is read at index 0 and then replaced, so that it cannot index outside the vocabulary.
    log_likelihood = draft_log_probs.gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return torch.where(labels >= 0, log_likelihood, -math.inf)


def check_mask(
    mask: Bool[Tensor, "*mask_shape"] | None, draft_logits: Float[Tensor, "*draft_shape"]
) -> Bool[Tensor, "*batch horizon"]:
    """The mask of a block objective: all positions where none is given.

    Raises:
        ForerunError: the logits have no axis of positions, or the mask does not have one entry per row.
    """
    if draft_logits.ndim < 2:
        raise ForerunError(f"draft_logits {tuple(draft_logits.shape)} are no block: give (..., horizon, vocab)")
    if mask is None:
        return torch.ones(draft_logits.shape[:-1], dtype=torch.bool, device=draft_logits.device)
    if mask.shape != draft_logits.shape[:-1]:
        raise ForerunError(
            f"mask {tuple(mask.shape)} does not match draft_logits {tuple(draft_logits.shape)}: one entry per row"
        )
    return mask


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
