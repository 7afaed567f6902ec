"""How the weights of a drafter network begin, unless its own initialisation says otherwise."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import nn

_STANDARD_DEVIATION = 0.02


def draw_weights(network: nn.Module, *, generator: torch.Generator, zeros: Collection[str] = ()) -> None:
    """Norms begin as 1, biases and the parameters named in ``zeros`` as 0, everything else normal (0, 0.02).

    Args:
        network: whose parameters are set, in the order in which it holds them.
        generator: source of every draw.
        zeros: names of parameters, as ``named_parameters`` has them.
    """
    for name, parameter in network.named_parameters():
        if name.endswith("norm.weight"):
            nn.init.ones_(parameter)
        elif name.endswith("bias") or name in zeros:
            nn.init.zeros_(parameter)
        else:
            nn.init.normal_(parameter, std=_STANDARD_DEVIATION, generator=generator)
