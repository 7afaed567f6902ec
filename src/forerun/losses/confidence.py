"""The loss of a confidence head: how well it foresees the acceptance of its position."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from forerun.errors import ForerunError
from forerun.losses._inputs import widened


def confidence_loss(
    confidence_logits: Float[Tensor, "*batch"], acceptances: Float[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    """Binary cross-entropy of a confidence against the acceptance as a soft label.

        BCE = -alpha log c - (1 - alpha) log(1 - c),   c = sigmoid(confidence_logit),   d BCE / d logit = c - alpha

    It is proper: smallest, at the entropy of alpha, where c = alpha.

    Args:
        confidence_logits: log-odds before verification.
        acceptances: `acceptance` of the same positions; detached here, and cut to [0, 1] where rounding left it.

    Returns:
        One value per position, in nats.

    Raises:
        ForerunError: the shapes differ.

    References:
        DSpark, arXiv 2607.05147, section 3.3: the label is 1 - TV, without gradient.
    """
    if confidence_logits.shape != acceptances.shape:
        raise ForerunError(
            f"confidence_logits {tuple(confidence_logits.shape)} and acceptances {tuple(acceptances.shape)} differ in "
            "shape"
        )
    dtype = torch.promote_types(widened(confidence_logits).dtype, acceptances.dtype)
    labels = acceptances.detach().clamp(0.0, 1.0).to(dtype)  # stop-gradient: a label
    return functional.binary_cross_entropy_with_logits(confidence_logits.to(dtype), labels, reduction="none")
