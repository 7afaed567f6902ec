"""Linear layers that read one and the same input, computed in one product: query, key and value; gate and up.

A small product on a CPU spends much of its time on being called; one call for three layers saves two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from forerun.models.packed_linear import PackedLinear


@final
class JointProduct:
    """The product that some layers share. The first of them that is called computes it for all.

    Args:
        layers: with the same number of inputs; all or none of them with a bias.
    """

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        biases = [layer.bias.detach() for layer in layers if layer.bias is not None]
        weight = torch.cat([layer.weight.detach() for layer in layers])
        self._whole = PackedLinear(weight, torch.cat(biases) if biases else None)
        self._sizes = [layer.out_features for layer in layers]
        self._inputs: Tensor | None = None
        self._waiting: dict[int, Tensor] = {}

    def size(self, index: int) -> tuple[int, int]:
        """Inputs and outputs of layer ``index``."""
        return self._whole.in_features, self._sizes[index]

    def output(self, index: int, inputs: Float[Tensor, "*batch in_features"]) -> Float[Tensor, "*batch out_features"]:
        """What layer ``index`` makes of ``inputs``; each part is handed out once and then forgotten."""
        if inputs is not self._inputs or index not in self._waiting:
            self._inputs = inputs
            self._waiting = dict(enumerate(self._whole(inputs).split(self._sizes, dim=-1)))
        part = self._waiting.pop(index)
        if not self._waiting:
            self._inputs = None
        return part


@final
class JointLinear(nn.Module):
    """One layer's part of a joint product."""

    def __init__(self, product: JointProduct, index: int) -> None:
        super().__init__()
        self._product = product
        self._index = index
        self.in_features, self.out_features = product.size(index)

    def forward(self, inputs: Float[Tensor, "*batch in_features"]) -> Float[Tensor, "*batch out_features"]:
        """``inputs @ weight.T + bias``."""
        return self._product.output(self._index, inputs)


def join_linears(module: nn.Module, probe: Callable[[], object]) -> int:
    """Replace linear layers that read the same tensor by joint ones, in place; returns how many were replaced.

    Which layers do is found by looking: a pass is run, and siblings that were handed the very same tensor are joined.
    A layer that the pass does not reach stays as it is.

    Args:
        module: the model.
        probe: runs a small pass of it.
    """
    readers: dict[tuple[nn.Module, int, bool], dict[str, nn.Linear]] = {}
    seen: list[Tensor] = []  # kept alive, so that no address is given out twice
    handles = []

    def watch(parent: nn.Module, name: str, layer: nn.Linear) -> Callable[..., None]:
        def hook(_module: nn.Module, inputs: tuple[Any, ...]) -> None:
            seen.append(inputs[0])
            readers.setdefault((parent, id(inputs[0]), layer.bias is not None), {})[name] = layer

        return hook

    for parent in module.modules():
        for name, child in parent.named_children():
            if type(child) is nn.Linear:
                handles.append(child.register_forward_pre_hook(watch(parent, name, child)))
    try:
        probe()
    finally:
        for handle in handles:
            handle.remove()
    replaced = 0
    for (parent, _, _), layers in readers.items():
        if len(layers) > 1:
            product = JointProduct(list(layers.values()))
            for index, name in enumerate(layers):
                parent.register_module(name, JointLinear(product, index))
            replaced += len(layers)
    return replaced
