"""DFlash2's mixing of neighbouring slots: a two-tap grouped dynamic depthwise convolution around a sublayer.

    mixed_t = k_t0 * x_t + k_t1 * x_(t-1),   k_ti = base_i + correction_i(input at t), one number per group of channels

The convolution before the sublayer and the one after it have kernels of their own, both predicted from the sublayer's
normalised input. It never crosses the border of a block: slot 1 reads the anchor, and slot 0 reads zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from forerun.drafters.backbone import Around

_BEFORE, _AFTER = 0, 1
_TAPS = 2


@final
class BlockConvolution(nn.Module):
    """The convolutions before and after one sublayer.

    Args:
        hidden_size: channels.
        group_size: channels that share a correction; divides them.
    """

    def __init__(self, hidden_size: int, group_size: int) -> None:
        super().__init__()
        self._groups = hidden_size // group_size
        # How far the base kernels are from the identity: weight decay pulls there, not towards silence. Published files
        # hold the kernels themselves, which are 1 more at the first tap.
        self.base_change = nn.Parameter(torch.zeros(2, _TAPS, hidden_size))
        self.correction = nn.Linear(hidden_size, 2 * _TAPS * self._groups, bias=False)

    def around(self, slots: int) -> Around:
        """What runs the sublayer, for blocks of this many slots."""

        def run(normed: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
            corrections = self.correction(normed).unflatten(-1, (2, _TAPS, self._groups))
            mixed = self.mix(normed, corrections[..., _BEFORE, :, :], self.base_change[_BEFORE], slots)
            return self.mix(sublayer(mixed), corrections[..., _AFTER, :, :], self.base_change[_AFTER], slots)

        return run

    def mix(
        self,
        states: Float[Tensor, "batch positions hidden"],
        corrections: Float[Tensor, "batch positions 2 groups"],
        base_change: Float[Tensor, "2 hidden"],
        slots: int,
    ) -> Float[Tensor, "batch positions hidden"]:
        """One convolution over blocks of ``slots`` consecutive positions."""
        blocks = states.unflatten(1, (-1, slots))
        before = functional.pad(blocks[:, :, :-1], (0, 0, 1, 0)).flatten(1, 2)  # slot 0 reads zero
        mixed = states
        for tap, values in enumerate((states, before)):
            grouped = values.unflatten(-1, (self._groups, -1)) * corrections[..., tap, :, None]
            mixed = mixed + base_change[tap] * values + grouped.flatten(-2)
        return mixed
