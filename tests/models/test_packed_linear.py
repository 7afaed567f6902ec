"""Packed weights compute what ordinary ones do."""

import pytest
import torch
from torch import nn

from forerun.distributions import SamplingParams
from forerun.drafters import DraftModel
from forerun.engine import generate
from forerun.models import PackedLinear, TransformersTarget, can_pack, pack_linears, tiny_target
from tests.support.families import FAMILIES, random_model

CPU = torch.device("cpu")
ROUNDING = 1e-5
"""Float32 sums of 48 products of numbers near 1."""

pytestmark = pytest.mark.skipif(not can_pack(torch.float32, CPU), reason="this build of torch has no packed operators")


@pytest.mark.parametrize("rows", range(1, 17))
@pytest.mark.parametrize("bias", [False, True])
def test_a_packed_layer_equals_a_linear_layer(rows: int, bias: bool) -> None:
    """Catches a bias that is dropped, a transposed weight, and block shapes that fit some widths only."""
    generator = torch.Generator().manual_seed(rows)
    plain = nn.Linear(48, 37, bias=bias)
    inputs = torch.randn(2, rows, 48, generator=generator)
    packed = PackedLinear(plain.weight, plain.bias)
    with torch.no_grad():
        torch.testing.assert_close(packed(inputs), plain(inputs), rtol=0, atol=ROUNDING)
        torch.testing.assert_close(packed(inputs[0, 0]), plain(inputs[0, 0]), rtol=0, atol=ROUNDING)


def test_only_types_that_the_machine_can_pack_are_packed() -> None:
    """Catches float64 targets whose weights are rounded behind the user's back."""
    assert not can_pack(torch.float64, CPU)
    assert not can_pack(torch.float32, torch.device("meta"))


def test_every_linear_layer_is_packed_and_counted() -> None:
    """Catches layers that are left out, and subclasses with a forward of their own that are replaced."""

    class Doubled(nn.Linear):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(inputs)

    module = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 2)), Doubled(2, 2))
    assert pack_linears(module) == 2
    assert [type(layer).__name__ for layer in module.modules()][1:] == [
        "PackedLinear",
        "Sequential",
        "ReLU",
        "PackedLinear",
        "Doubled",
    ]


@pytest.mark.parametrize("family", ["llama", "llama-tied", "gpt-neox"])
def test_greedy_answers_are_those_of_eager_torch(family: str) -> None:
    """Catches a speed-up that changes answers, and a tied head whose embedding is lost."""
    eager = TransformersTarget(random_model(FAMILIES[family]()), None, name="eager")
    packed = TransformersTarget(random_model(FAMILIES[family]()), None, name="packed", optimize=True)
    assert (eager.packed_linears, packed.packed_linears > 3) == (0, True)
    assert packed.fingerprint == eager.fingerprint
    assert torch.equal(packed.head_weight, eager.head_weight)
    answers = [
        generate(
            target,
            [5, 9, 2],
            drafter=DraftModel(eager, target),
            horizon=horizon,
            sampling=SamplingParams(temperature=0.0),
            max_new_tokens=24,
        ).token_ids
        for target in (eager, packed)
        for horizon in (0, 4)
    ]
    assert answers == [answers[0]] * 4


def test_float64_is_never_packed() -> None:
    """Catches an option that changes what a reference computes."""
    model = random_model(FAMILIES["llama"]())
    nn.Module.to(model, torch.float64)
    assert TransformersTarget(model, None, name="exact", optimize=True).packed_linears == 0
    assert tiny_target().packed_linears == 0


def test_rows_of_a_head_are_packed_as_the_whole_one_is() -> None:
    """Catches a narrow head that is slower than the whole one, one of the whole size, and a lost bias."""
    plain = TransformersTarget(random_model(FAMILIES["phi3"]()), None, name="eager")
    plain.model.get_output_embeddings().bias = nn.Parameter(torch.randn(plain.vocab_size))
    target = TransformersTarget(plain.model, None, name="packed", optimize=True)
    kept = torch.arange(0, target.vocab_size, 7)
    narrow = target.with_head_rows(kept)
    head = narrow.model.get_output_embeddings()
    assert isinstance(head, PackedLinear) and head.out_features == len(kept) and narrow.packed_linears == 1
    ids = torch.arange(9)
    expected = target.forward(ids, target.new_cache()).logits[:, kept]
    torch.testing.assert_close(narrow.forward(ids, narrow.new_cache()).logits, expected, rtol=0, atol=ROUNDING)
