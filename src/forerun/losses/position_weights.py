"""How much each position of a block weighs in the loss; position 1 is the first drafted token."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from forerun.errors import ForerunError


def bound_weights(horizon: int) -> Float[Tensor, " horizon"]:
    """Weights with which the TVP loss bounds the expected acceptance length: `w_h = (K - h + 1)/K`.

    Position h is part of the K - h + 1 prefixes that are at least h long. The weights sum to (K + 1)/2.

    Args:
        horizon: K, the number of drafted positions.

    Returns:
        float64 weights; `masked_sum` moves them to the loss's device and precision.

    Raises:
        ForerunError: horizon below 1.

    Example:
        >>> bound_weights(4)
        tensor([1.0000, 0.7500, 0.5000, 0.2500], dtype=torch.float64)
    """
    return (horizon - _offsets(horizon)) / horizon


def exp_weights(horizon: int, *, gamma: float = 4.0) -> Float[Tensor, " horizon"]:
    """Exponentially decaying weights: `w_h = e^(-(h - 1)/gamma)`.

    Args:
        horizon: K, the number of drafted positions.
        gamma: decay length in positions; DSpark's released configuration uses 4 for K = 7.

    Returns:
        float64 weights; `masked_sum` moves them to the loss's device and precision.

    Raises:
        ForerunError: horizon below 1, or gamma not positive and finite.

    References:
        DFlash (arXiv 2602.06036) appendix A.1: gamma 7, 5, 4 for blocks of 16, 10, 8; DSpark (arXiv 2607.05147) 3.3.
    """
    if not 0.0 < gamma < math.inf:
        raise ForerunError(f"gamma is {gamma}; give a positive decay length in positions")
    return torch.exp(-_offsets(horizon) / gamma)


def geometric_weights(horizon: int, *, rate: float = 0.8) -> Float[Tensor, " horizon"]:
    """Geometrically decaying weights: `w_h = rate^(h - 1)`.

    Args:
        horizon: K, the number of drafted positions.
        rate: 0.8 for EAGLE-3's steps and the heads of the LK paper; FastMTP uses 0.6.

    Returns:
        float64 weights; `masked_sum` moves them to the loss's device and precision.

    Raises:
        ForerunError: horizon below 1, or rate outside (0, 1].

    References:
        EAGLE-3 (arXiv 2503.01840); LK losses (arXiv 2602.23881) 5.3; FastMTP (arXiv 2509.18362).
    """
    if not 0.0 < rate <= 1.0:
        raise ForerunError(f"rate is {rate}; give a factor in (0, 1]")
    return rate ** _offsets(horizon)


def uniform_weights(horizon: int) -> Float[Tensor, " horizon"]:
    """Every position weighs 1.

    Args:
        horizon: K, the number of drafted positions.

    Returns:
        float64 weights; `masked_sum` moves them to the loss's device and precision.

    Raises:
        ForerunError: horizon below 1.
    """
    return torch.ones_like(_offsets(horizon))


def _offsets(horizon: int) -> Float[Tensor, " horizon"]:
    """Positions counted from zero: h - 1 for h = 1..K."""
    if horizon < 1:
        raise ForerunError(f"horizon is {horizon}; position weights need at least one drafted position")
    return torch.arange(horizon, dtype=torch.float64)
