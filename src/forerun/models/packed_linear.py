"""Linear layers for the 1 to 16 rows of a decoding pass on a CPU.

With torch's ordinary layout a verification of 2 to 8 tokens costs 1.7 to 2.3 times a single token; with oneDNN's
blocked layout 1.3 to 1.9 times. The blocked layout in turn is slower for a single row. So both are kept, at
the price of holding these weights twice. The results agree to rounding (about 3e-6 in float32).
"""

from __future__ import annotations

from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn

_ROWS_HINT = 8  # oneDNN picks the block shape for this many rows; measured best over 1..16


@final
class PackedLinear(nn.Module):
    """Inference-only replacement of ``nn.Linear``; float32 and bfloat16 on CPU."""

    def __init__(
        self, weight: Float[Tensor, "out_features in_features"], bias: Float[Tensor, " out_features"] | None
    ) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self._plain = weight.detach()
        with torch.no_grad():
            self._packed = torch.ops.mkldnn._reorder_linear_weight(self._plain.contiguous(), _ROWS_HINT)
        self._bias = None if bias is None else bias.detach().clone()

    def forward(self, inputs: Float[Tensor, "*batch in_features"]) -> Float[Tensor, "*batch out_features"]:
        """``inputs @ weight.T + bias``."""
        if inputs.numel() == self.in_features:  # one row
            return nn.functional.linear(inputs, self._plain, self._bias)
        rows = inputs.reshape(-1, self.in_features)
        output: Tensor = torch.ops.mkldnn._linear_pointwise(rows, self._packed, self._bias, "none", [], "")
        return output.view(*inputs.shape[:-1], self.out_features)


def can_pack(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether this build of torch has the packed operators for this type and device, found by trying one."""
    if device.type != "cpu" or dtype not in (torch.float32, torch.bfloat16) or not torch.backends.mkldnn.is_available():
        return False
    weight = torch.eye(16, dtype=dtype)
    try:
        packed = PackedLinear(weight, None)
        return bool(torch.equal(packed(weight), weight))
    except (RuntimeError, AttributeError):  # private operators: a build without them falls back to nn.Linear
        return False


def pack_linears(module: nn.Module) -> int:
    """Replace every ``nn.Linear`` below ``module`` by a packed one, in place; returns how many were replaced."""
    replaced = 0
    for name, child in module.named_children():
        if type(child) is nn.Linear:
            module.register_module(name, PackedLinear(child.weight, child.bias))
            replaced += 1
        else:
            replaced += pack_linears(child)
    return replaced
