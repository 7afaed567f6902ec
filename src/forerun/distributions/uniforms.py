"""The form every uniform random number of this package has."""

import torch
from jaxtyping import Float64
from torch import Tensor

from forerun.errors import ForerunError


def check_uniforms(uniforms: Float64[Tensor, " count"], count: int) -> None:
    """Refuses anything but ``count`` float64 numbers in [0, 1).

    Float32 is refused, not converted: its 24 bits would leave small probabilities without any number that draws them.

    Raises:
        ForerunError: Another count, another type, or a number outside [0, 1).
    """
    if uniforms.shape != (count,) or uniforms.dtype != torch.float64:
        raise ForerunError(
            f"uniforms have shape {tuple(uniforms.shape)} and type {uniforms.dtype}; give {count} in float64"
        )
    if not bool(((uniforms >= 0.0) & (uniforms < 1.0)).all()):
        raise ForerunError(f"uniforms hold a number outside [0, 1): {uniforms.tolist()}")
