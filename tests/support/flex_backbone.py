"""Runs the parallel backbone with a dense mask and through flex attention; run as a program, without tests' checks.

Annotations are checked in tests by wrappers that no compiler can look through, so this runs in a process of its own:
``python -W error -m tests.support.flex_backbone`` prints the largest difference of the two, with a window and without.
"""

import torch
from torch import Tensor

from forerun.drafters.attention import block_mask, dense_mask
from forerun.drafters.backbone import Backbone, block_rule
from tests.support.networks import BLOCK, tiny_layer

LENGTH, BLOCKS, HIDDEN = 130, 70, 32
CPU = torch.device("cpu")


def states(window: int | None, *, flex: bool) -> Tensor:
    """Two rows whose masks consist of several flex blocks, some of them empty."""
    generator = torch.Generator().manual_seed(0)
    own = Backbone(hidden_size=HIDDEN, num_captured=2, num_layers=2, shape=tiny_layer(window=window)).double()
    for parameter in own.parameters():
        parameter.requires_grad_(False).copy_(0.4 * torch.randn(parameter.shape, generator=generator))
    features = torch.randn(2, LENGTH, 2, HIDDEN, generator=generator, dtype=torch.float64)
    embeddings = torch.randn(2, BLOCKS, HIDDEN, generator=generator, dtype=torch.float64)
    anchors = torch.arange(1, BLOCKS + 1).expand(2, -1) + torch.tensor([[0], [50]])
    rule = block_rule(anchors, length=LENGTH, slots=BLOCK, window=window)
    make_mask = block_mask if flex else dense_mask
    mask = make_mask(rule, rows=2, queries=BLOCKS * BLOCK, keys=LENGTH + BLOCKS * BLOCK, device=CPU)
    return own.block(own.context(features, 0), embeddings, anchors, BLOCK, mask)


if __name__ == "__main__":
    everything = states(None, flex=False)
    for window in (None, 40):
        dense = states(window, flex=False)
        print(float((states(window, flex=True) - dense).abs().max()), float((dense - everything).abs().max()))
