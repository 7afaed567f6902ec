"""Layers that read one input compute what they computed one by one."""

import pytest
import torch
from torch import Tensor, nn

from forerun.models import can_pack
from forerun.models.joint_linear import JointLinear, join_linears
from forerun.models.packed_linear import PackedLinear

ROUNDING = 1e-5
"""Float32 sums of 12 products of numbers near 1."""

pytestmark = pytest.mark.skipif(
    not can_pack(torch.float32, torch.device("cpu")), reason="this build of torch has no packed operators"
)


class Attention(nn.Module):
    """Three readers of one tensor, one of another with as many inputs, one that is never called, one with a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(12, 12, bias=False)
        self.key = nn.Linear(12, 4, bias=False)
        self.value = nn.Linear(12, 4, bias=False)
        self.gate = nn.Linear(12, 4)
        self.out = nn.Linear(12, 5, bias=False)
        self.unused = nn.Linear(12, 3, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        mixed = self.query(inputs) * self.gate(inputs).mean() + self.key(inputs).sum() - self.value(inputs).mean()
        return torch.cat([self.out(mixed), self.key(inputs)], dim=-1)  # the key a second time, of the same tensor


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_joint_layers_equal_separate_ones(rows: int) -> None:
    """Catches parts in the wrong order, a part of an earlier input, and a layer joined to readers of another tensor."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rows)
        model = Attention().requires_grad_(False)
        inputs = [torch.randn(1, rows, 12) for _ in range(3)]
    expected = [model(each) for each in inputs]
    with torch.inference_mode():
        assert join_linears(model, lambda: model(inputs[0])) == 3
        for _ in range(2):
            for each, right in zip(inputs, expected, strict=True):
                torch.testing.assert_close(model(each), right, rtol=0, atol=ROUNDING)
    kinds = {name: type(layer) for name, layer in model.named_children()}
    assert {name for name, kind in kinds.items() if kind is JointLinear} == {"query", "key", "value"}
    assert kinds["out"] is kinds["unused"] is kinds["gate"] is nn.Linear


def test_one_row_and_many_rows_agree() -> None:
    """Catches two layouts of which one is stale."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer, inputs = nn.Linear(12, 9), torch.randn(5, 12)
    packed = PackedLinear(layer.weight, layer.bias)
    rows = torch.stack([packed(row) for row in inputs])
    torch.testing.assert_close(packed(inputs), rows, rtol=0, atol=ROUNDING)
