"""What a mask token adds to a model: an input embedding of its own, and low-rank updates that act on its rows alone.

Every other row of a pass keeps its bits: an update is computed for all rows (a pass of fixed shape can be recorded) and
then taken where a mask stands. Knows nothing of drafting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import final

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional
from transformers.pytorch_utils import Conv1D

from forerun.errors import ForerunError
from forerun.models.joint_linear import JointLinear
from forerun.models.packed_linear import PackedLinear

Sites = Mapping[str, tuple[int, int]]
"""Linear layers by name (``LAYER.NAME``, ``3.self_attn.q_proj``), each with its inputs and outputs."""


@final
class MaskAdapter(nn.Module):
    """Trainable part of a mask token.

        embedding(mask) = e,    linear(x) += (alpha / rank) up(down(x))   in the rows of masks

    Args:
        hidden_size: width of the embedding.
        sites: linear layers that are updated; none for a model that was trained as a whole.
        rank: of the updates.
        alpha: their scale is ``alpha / rank``, so that another rank needs no other learning rate.

    References:
        Hu et al. 2022, arXiv:2106.09685 (low-rank updates); Samragh et al. 2025, arXiv:2507.11851 (on masks only).
    """

    def __init__(self, hidden_size: int, sites: Sites, *, rank: int, alpha: float) -> None:
        super().__init__()
        self.sites = dict(sites)
        self.scale = alpha / max(rank, 1)
        self.embedding = nn.Parameter(torch.zeros(hidden_size))
        self.down = nn.ParameterDict({_key(name): torch.zeros(rank, inputs) for name, (inputs, _) in sites.items()})
        self.up = nn.ParameterDict({_key(name): torch.zeros(outputs, rank) for name, (_, outputs) in sites.items()})
        self._rows: Bool[Tensor, "rows width 1"] | None = None

    def initialise(self, *, generator: torch.Generator, embedding: Float[Tensor, " hidden"]) -> None:
        """Start as no update at all.

        Args:
            generator: source of the draws.
            embedding: to start from, such as the mean of all tokens.
        """
        with torch.no_grad():
            self.embedding.copy_(embedding)
            for name, (inputs, _) in self.sites.items():
                nn.init.normal_(self.down[_key(name)], std=inputs**-0.5, generator=generator)
                nn.init.zeros_(self.up[_key(name)])

    def attach(self, embedding: nn.Module, layers: nn.ModuleList) -> None:
        """Listen to a model; nothing changes until ``rows`` names some.

        Args:
            embedding: its table of tokens.
            layers: its decoder layers, which must have the sites.

        Raises:
            ForerunError: a site is missing or of another size, or the embedding is.
        """
        modules = dict(layers.named_modules())
        for name, size in self.sites.items():
            found = None if name not in modules else linear_size(modules[name])
            if found != size:
                raise ForerunError(f"the mask token updates layer {name} of size {size}; this model has {found} there")
        embedding.register_forward_hook(self._embed)
        for name in self.sites:
            modules[name].register_forward_hook(self._updating(_key(name)))

    def act_on(self, rows: Bool[Tensor, "rows width"] | None) -> None:
        """Say where masks stand in the passes to come; ``None`` for nowhere."""
        self._rows = None if rows is None else rows[..., None]

    def _embed(self, _module: nn.Module, _inputs: object, output: Tensor) -> Tensor:
        if self._rows is None:
            return output
        return torch.where(self._rows, self.embedding.to(output.dtype), output)

    def _updating(self, key: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], Tensor]:
        def hook(_module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
            if self._rows is None:
                return output
            down, up = self.down[key], self.up[key]
            update = functional.linear(functional.linear(inputs[0].to(down.dtype), down), up) * self.scale
            return torch.where(self._rows, output + update.to(output.dtype), output)

        return hook


def linear_size(module: nn.Module) -> tuple[int, int] | None:
    """Inputs and outputs of a linear layer in any of the forms that models have; ``None`` for other modules."""
    if isinstance(module, nn.Linear | PackedLinear | JointLinear):
        return module.in_features, module.out_features
    return (module.nx, module.nf) if isinstance(module, Conv1D) else None


def find_sites(
    layers: nn.ModuleList, names: tuple[str, ...], probe: Callable[[], object]
) -> dict[str, tuple[int, int]]:
    """The linear layers of a model that a mask token can update, found by looking at a pass.

    A layer that is not handed one row for each token (an expert, a router) cannot be updated by row.

    Args:
        layers: decoder layers.
        names: last parts of the names to take (``q_proj``); none for all.
        probe: runs a pass of one sequence.

    Raises:
        ForerunError: a name that no layer has; those that there are are listed.
    """
    sites: dict[str, tuple[int, int]] = {}

    def watch(name: str, size: tuple[int, int]) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def hook(_module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            if inputs and inputs[0].ndim == 3:  # (rows, width, inputs)
                sites[name] = size

        return hook

    handles = [
        module.register_forward_pre_hook(watch(name, size))
        for name, module in layers.named_modules()
        if (size := linear_size(module)) is not None
    ]
    try:
        probe()
    finally:
        for handle in handles:
            handle.remove()
    known = sorted({name.rpartition(".")[2] for name in sites})
    for name in names:
        if name not in known:
            raise ForerunError(f"no linear layer is called {name!r}; this model has {', '.join(known)}")
    return {name: size for name, size in sites.items() if not names or name.rpartition(".")[2] in names}


def _key(name: str) -> str:
    """Names of parameters take no dots."""
    return name.replace(".", "/")
