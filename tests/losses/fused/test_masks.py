"""Masked positions are not computed."""

import math

import pytest
import torch
from torch import Tensor

from forerun.losses.fused import Projection, TargetStates, fused_sum, fused_values
from tests.support.fused import DIVERGENCES, problem

MASK = torch.arange(40) % 3 == 1


@pytest.mark.parametrize("name", ["cross_entropy", "tvp 0.5", "tv + kl"])
def test_mask_equals_dropping_the_rows(name: str) -> None:
    """Catches a masked row in the values, in a gradient, or in the sum over positions of the head's gradient."""
    divergence, loss = DIVERGENCES[name]
    given = problem()
    exact = torch.where(MASK, given.eager(loss), 0.0)
    exact_gradients = torch.autograd.grad(exact.sum(), (given.hidden, given.weight))
    rows = fused_values(given.draft, given.target, divergence, labels=given.labels, mask=MASK, chunk=16)
    total = fused_sum(given.draft, given.target, divergence, labels=given.labels, mask=MASK, chunk=16).total
    torch.testing.assert_close(rows.values, exact.detach(), rtol=1e-12, atol=1e-12)
    for value in (rows.values.sum(), total):
        found = torch.autograd.grad(value, (given.hidden, given.weight))
        for one, other in zip(found, exact_gradients, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-13)


def test_masked_rows_may_hold_anything() -> None:
    """Catches zero times NaN: a masked row that is computed and then multiplied away spoils the head's gradient."""
    given = problem()
    hidden = torch.where(MASK[:, None], given.hidden.detach(), math.nan).requires_grad_()
    target = TargetStates(hidden=torch.where(MASK[:, None], given.target_hidden, math.inf), weight=given.target_weight)
    draft = Projection(hidden=hidden, weight=given.weight)
    for value in (
        fused_values(draft, target, DIVERGENCES["tvp 0.5"][0], mask=MASK, chunk=16).values.sum(),
        fused_sum(draft, target, DIVERGENCES["tvp 0.5"][0], mask=MASK, chunk=16).total,
    ):
        assert bool(value.isfinite())
        hidden_gradient, weight_gradient = torch.autograd.grad(value, (hidden, given.weight))
        assert bool(weight_gradient.isfinite().all())
        assert hidden_gradient[~MASK].abs().max().item() == 0


def test_products_see_valid_rows_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches work on masked rows: the rows of all products are counted."""
    rows: list[int] = []
    product = torch.mm

    def counted(left: Tensor, right: Tensor, *, out: Tensor) -> Tensor:
        rows.append(left.shape[0])
        return product(left, right, out=out)

    monkeypatch.setattr(torch, "mm", counted)
    given = problem()
    fused_values(given.draft, given.target, DIVERGENCES["tvp 0.5"][0], mask=MASK, chunk=16)
    assert sum(rows) == 2 * int(MASK.sum())  # one product for each law


def test_nothing_valid() -> None:
    given = problem()
    total = fused_sum(
        given.draft, given.target, DIVERGENCES["tvp 0.5"][0], mask=torch.zeros(40, dtype=torch.bool)
    ).total
    gradients = torch.autograd.grad(total, (given.hidden, given.weight))
    assert total.item() == 0
    assert all(gradient.abs().max().item() == 0 for gradient in gradients)
