"""The Triton kernel in Triton's interpreter, against the eager losses; run by `test_kernels`. No GPU is needed.

Triton reads the source of its kernels, which the annotation checks of the test run wrap; hence a run of its own.
"""

import math
import os

import pytest
import torch
from torch import Tensor

from forerun.errors import ForerunError
from forerun.losses.fused import (
    Divergence,
    InexactTarget,
    Projection,
    TargetStates,
    TopKTarget,
    fused_sum,
    fused_values,
)
from tests.support.fused import DIVERGENCES, problem

os.environ.setdefault("TRITON_INTERPRET", "1")  # read when the kernels are defined, which is at their first use


@pytest.mark.parametrize("name", DIVERGENCES)
def test_value_and_gradient(name: str) -> None:
    """Catches a term that the kernel forgets, in the values or in one of the two passes of the gradient."""
    divergence, loss = DIVERGENCES[name]
    exact = problem(20, vocab=5000)  # more than one block of columns
    given = exact.to(torch.float32)
    mask = torch.arange(20) % 4 != 2
    values = torch.where(mask, exact.eager(loss), 0.0)
    gradients = torch.autograd.grad(values.sum(), (exact.hidden, exact.weight))
    found = fused_sum(given.draft, given.target, divergence, labels=given.labels, mask=mask, chunk=16, backend="triton")
    torch.testing.assert_close(found.rows.values.double(), values.detach(), rtol=1e-5, atol=1e-6)
    for one, other in zip(torch.autograd.grad(found.total, (given.hidden, given.weight)), gradients, strict=True):
        assert float((one.double() - other).norm() / other.norm()) < 1e-5


def test_sources_of_the_law() -> None:
    """Catches a gather that is not normalised on the whole vocabulary, a lost cap, a normaliser taken twice."""
    given = problem().to(torch.float32).frozen()
    ids = torch.randperm(97, generator=torch.Generator().manual_seed(4))[:40]
    draft = Projection(hidden=given.hidden, weight=given.weight[:40])
    normaliser = (given.target_hidden @ given.target_weight.T).logsumexp(-1)
    stored = given.target_log_probs.topk(9)
    states = {"hidden": given.target_hidden, "weight": given.target_weight}
    targets: list[TargetStates | TopKTarget] = [
        TargetStates(**states, draft_token_ids=ids, soft_cap=2.0, bias=torch.linspace(-1, 1, 97)),
        TargetStates(hidden=given.target_hidden, weight=given.target_weight[ids], log_normaliser=normaliser),
        TopKTarget(token_ids=torch.where(stored.indices < 40, stored.indices, -1), log_probs=stored.values),
    ]
    for target in targets[:2]:
        both = [fused_values(draft, target, DIVERGENCES["tvp 0.5"][0], backend=name) for name in ("torch", "triton")]
        torch.testing.assert_close(both[1].values, both[0].values)
        torch.testing.assert_close(both[1].acceptances, both[0].acceptances)
        torch.testing.assert_close(both[1].missing, both[0].missing)
    with pytest.warns(InexactTarget):
        both = [fused_values(draft, targets[2], DIVERGENCES["tvp 0"][0], backend=name) for name in ("torch", "triton")]
    torch.testing.assert_close(both[1].values, both[0].values)


HARD_ROWS = {
    "one-hot target": ([0.0, -math.inf, -math.inf], [1.0, 2.0, 3.0]),
    "one-hot laws": ([0.0, -math.inf, -math.inf], [0.0, -math.inf, -math.inf]),
    "draft excludes it": ([0.0, -math.inf, -math.inf], [-math.inf, 0.0, 0.0]),
    "underflow": ([0.0, 0.0, -math.inf], [-3e4, 0.0, 3e4]),
    "identical": ([0.2, 0.3, -1.5], [0.2, 0.3, -1.5]),
    "diverged": ([0.2, 0.3, -1.5], [0.2, math.nan, -1.5]),
}


def on_bias(target: Tensor, draft: Tensor, divergence: Divergence, backend: str) -> tuple[Tensor, Tensor]:
    """Value and gradient of one row of logits, given as biases."""
    bias = draft.clone().requires_grad_()
    nothing = Projection(hidden=torch.zeros(1, 1), weight=torch.zeros(3, 1))
    law = TargetStates(hidden=nothing.hidden, weight=nothing.weight, bias=target)
    labels = torch.tensor([0])
    value = fused_values(nothing, law, divergence, bias=bias, labels=labels, backend=backend).values  # type: ignore[arg-type]
    return value.detach(), torch.autograd.grad(value.sum(), bias)[0]


@pytest.mark.parametrize("row", HARD_ROWS)
def test_limits(row: str) -> None:
    """Catches inf - inf and 0 * inf: the limits are those of the torch version, NaN of a diverged run included."""
    target, draft = (torch.tensor(logits) for logits in HARD_ROWS[row])
    for divergence, _ in DIVERGENCES.values():
        plain, kernel = (on_bias(target, draft, divergence, backend) for backend in ("torch", "triton"))
        for one, other in zip(kernel, plain, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_float64_is_refused() -> None:
    given = problem(3)
    with pytest.raises(ForerunError, match="float32"):
        fused_values(given.draft, given.target, Divergence(total_variation=1.0), backend="triton")
