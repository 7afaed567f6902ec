"""A transformers model with some rows of its language-model head only, sharing everything else with the whole one."""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def rows_of(
    weight: Float[Tensor, "vocab hidden"], bias: Float[Tensor, " vocab"] | None, token_ids: Int[Tensor, " kept"]
) -> nn.Linear:
    """A linear layer with these rows; a product with it costs ``kept / vocab`` of the whole one."""
    chosen = token_ids.to(weight.device)
    narrow: nn.Linear = nn.utils.skip_init(
        nn.Linear, weight.shape[1], len(chosen), bias=bias is not None, device=weight.device, dtype=weight.dtype
    )
    with torch.no_grad():
        narrow.weight.copy_(weight[chosen])
        if bias is not None:
            narrow.bias.copy_(bias[chosen])
    return narrow


def with_module(model: ModuleT, path: str, module: nn.Module) -> ModuleT:
    """A view of a model in which another module stands at ``path``; all others are shared, and ``model`` stays.

    Args:
        model: any module.
        path: as in ``named_modules``.
        module: stands there in the view.

    Example:
        >>> whole = nn.Sequential(nn.Identity(), nn.Sequential(nn.Identity()))
        >>> view = with_module(whole, "1.0", nn.Tanh())
        >>> view[1][0], whole[1][0], view[0] is whole[0]
        (Tanh(), Identity(), True)
    """
    view = copy.copy(model)
    view._modules = dict(model._modules)
    name, _, rest = path.partition(".")
    view._modules[name] = with_module(model.get_submodule(name), rest, module) if rest else module
    return view
