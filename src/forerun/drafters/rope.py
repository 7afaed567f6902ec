"""Rotary position embedding as numbers, resolved once from the target and stored with the drafter.

Names such as a base or a scaling kind are read differently by different libraries and versions; frequencies are not.
"""

from __future__ import annotations

from typing import final

import torch
from jaxtyping import Float, Int
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor


@final
class Rope(BaseModel):
    """Pair i of a head's first ``2 * len(inverse_frequencies)`` numbers turns by position * inverse_frequencies[i].

    Attributes:
        inverse_frequencies: radians per position; the rest of the head is left alone (partial rotary embedding).
        attention_scaling: factor of cosines and sines (YaRN has one); 1 elsewhere.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    inverse_frequencies: tuple[float, ...] = Field(min_length=1)
    attention_scaling: float = Field(gt=0)

    @classmethod
    def plain(cls, theta: float, dim: int) -> Rope:
        """``theta ** (-2 i / dim)`` over the whole head.

        Example:
            >>> Rope.plain(100.0, 4).inverse_frequencies
            (1.0, 0.1)
        """
        exponents = torch.arange(0, dim, 2, dtype=torch.float64) / dim
        return cls(inverse_frequencies=tuple((theta**-exponents).tolist()), attention_scaling=1.0)

    @property
    def rotary_dim(self) -> int:
        """Numbers of a head that turn."""
        return 2 * len(self.inverse_frequencies)

    def rotation(self, positions: Int[Tensor, "batch length"], dtype: torch.dtype) -> Rotation:
        """Cosines and sines for these positions, computed in float64 so that long positions stay exact."""
        frequencies = torch.tensor(self.inverse_frequencies, dtype=torch.float64, device=positions.device)
        angles = positions[..., None].to(torch.float64) * frequencies
        cosines, sines = angles.cos() * self.attention_scaling, angles.sin() * self.attention_scaling
        return Rotation(cosines.to(dtype)[:, None], sines.to(dtype)[:, None])


@final
class Rotation:
    """Turns heads to their positions.

    Args:
        cosines: of the angles.
        sines: likewise.
    """

    def __init__(
        self, cosines: Float[Tensor, "batch 1 length half"], sines: Float[Tensor, "batch 1 length half"]
    ) -> None:
        self._cosines = cosines
        self._sines = sines

    def turn(self, heads: Float[Tensor, "batch heads length dim"]) -> Float[Tensor, "batch heads length dim"]:
        """Number i is paired with number i + rotary_dim / 2."""
        half = self._cosines.shape[-1]
        first, second, rest = heads[..., :half], heads[..., half : 2 * half], heads[..., 2 * half :]
        turned = [
            first * self._cosines - second * self._sines,
            second * self._cosines + first * self._sines,
        ]
        return torch.cat([*turned, rest], dim=-1)
