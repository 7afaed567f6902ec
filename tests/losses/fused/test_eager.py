"""The fused path against the eager losses, which are its reference and are tested on their own."""

import pytest
import torch
from torch import Tensor

from forerun import losses
from forerun.losses.fused import Divergence, Projection, TargetStates, fused_sum, fused_values
from tests.support.fused import DIVERGENCES, Problem, problem
from tests.support.speed import without_shape_checks

each_divergence = pytest.mark.parametrize("name", DIVERGENCES)


def uneven(positions: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """An upstream gradient that differs at every position."""
    return torch.rand(positions, generator=torch.Generator().manual_seed(9), dtype=torch.float64).to(dtype) + 0.5


def gradients(value: Tensor, given: Problem) -> tuple[Tensor, Tensor]:
    hidden, weight = torch.autograd.grad(value, (given.hidden, given.weight))
    return hidden, weight


def relative_error(found: Tensor, exact: Tensor) -> float:
    return float((found.double() - exact).norm() / exact.norm())


@each_divergence
def test_value_and_gradients_in_float64(name: str) -> None:
    """Catches a wrong pull, a wrong weight in a mixture, and a head's gradient that forgets the upstream one."""
    divergence, loss = DIVERGENCES[name]
    given, weights = problem(), uneven(40)
    exact = given.eager(loss)
    exact_gradients = gradients((exact * weights).sum(), given)
    rows = fused_values(given.draft, given.target, divergence, labels=given.labels, chunk=16)
    whole = fused_sum(given.draft, given.target, divergence, labels=given.labels, weights=weights, chunk=16)
    torch.testing.assert_close(rows.values, exact, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(whole.total, (exact * weights).sum(), rtol=1e-12, atol=0)
    for value in ((rows.values * weights).sum(), whole.total):
        for found, expected in zip(gradients(value, given), exact_gradients, strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-13)


@each_divergence
def test_value_in_float32(name: str) -> None:
    """The issue's 1e-6 against the eager loss on the same float32 logits."""
    divergence, loss = DIVERGENCES[name]
    given = problem().to(torch.float32)
    rows = fused_values(given.draft, given.target, divergence, labels=given.labels, chunk=16)
    assert rows.values.dtype == torch.float32
    torch.testing.assert_close(rows.values, given.eager(loss), rtol=2e-6, atol=1e-6)


@each_divergence
def test_gradient_from_bfloat16(name: str) -> None:
    """C44. Catches logits or products in bfloat16: their gradient is off by 1e-3 to 1e-1, not by 1e-5."""
    divergence, loss = DIVERGENCES[name]
    narrow = problem(64, vocab=300).to(torch.bfloat16)
    wide = narrow.to(torch.float64)
    exact_gradients = gradients(wide.eager(loss).sum(), wide)
    target = TargetStates(hidden=narrow.target_hidden, weight=narrow.target_weight)
    # Hidden states in float32, as a caller upcasts them; heads stay as they are stored.
    hidden = narrow.hidden.detach().float().requires_grad_()
    draft = Projection(hidden=hidden, weight=narrow.weight)
    total = fused_sum(draft, target, divergence, labels=narrow.labels, chunk=16).total
    found_hidden, found_weight = torch.autograd.grad(total, (hidden, narrow.weight))
    assert relative_error(found_hidden, exact_gradients[0]) < 1e-5
    torch.testing.assert_close(found_weight, exact_gradients[1].bfloat16(), rtol=8e-3, atol=1e-5)
    half = torch.autograd.grad(fused_sum(narrow.draft, target, divergence, labels=narrow.labels).total, narrow.hidden)
    assert half[0].dtype == torch.bfloat16
    torch.testing.assert_close(half[0], found_hidden.bfloat16(), rtol=8e-3, atol=1e-6)


@pytest.mark.parametrize("name", ["tvp 0.5", "everything"])
def test_gradcheck(name: str) -> None:
    """Central differences of the function itself, in every tensor that can be trained."""
    divergence = DIVERGENCES[name][0]
    given = problem(3, vocab=5, hidden=2)
    bias = torch.linspace(-1, 1, 5, dtype=torch.float64).requires_grad_()

    def values(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        draft = Projection(hidden=hidden, weight=weight)
        return fused_values(draft, given.target, divergence, labels=given.labels, bias=bias).values

    def total(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        draft = Projection(hidden=hidden, weight=weight)
        return fused_sum(draft, given.target, divergence, labels=given.labels, bias=bias, weights=uneven(3)).total

    with without_shape_checks():
        assert torch.autograd.gradcheck(values, (given.hidden, given.weight, bias))
        assert torch.autograd.gradcheck(total, (given.hidden, given.weight, bias))


@pytest.mark.parametrize("positions", [0, 1, 12, 13, 40])
def test_any_chunk_size(positions: int) -> None:
    """Catches a last chunk, or a last block of one, that is left out or read from the chunk before."""
    divergence, loss = DIVERGENCES["everything"]
    given = problem(positions)
    exact = given.eager(loss)
    for chunk in (16, 17, 33, 64, 1000):
        rows = fused_values(given.draft, given.target, divergence, labels=given.labels, chunk=chunk)
        torch.testing.assert_close(rows.values, exact, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(
            torch.autograd.grad(rows.values.sum(), given.hidden)[0],
            torch.autograd.grad(exact.sum(), given.hidden, retain_graph=True)[0],
            rtol=1e-10,
            atol=1e-13,
        )


def test_acceptance_and_missing_mass() -> None:
    """The numbers that training logs come from the same pass; the confidence head's label is one of them."""
    given = problem()
    ids = torch.randperm(97, generator=torch.Generator().manual_seed(1))[:30]
    target = TargetStates(hidden=given.target_hidden, weight=given.target_weight, draft_token_ids=ids)
    draft = Projection(hidden=given.hidden, weight=given.weight[:30])
    rows = fused_values(draft, target, Divergence(cross_entropy=1.0), labels=given.labels.clamp(max=29), chunk=16)
    law = losses.draft_rows(given.target_log_probs, ids)
    torch.testing.assert_close(rows.acceptances, losses.acceptance(law, given.hidden @ given.weight[:30].T))
    torch.testing.assert_close(rows.missing, losses.outside_mass(law))
    assert not rows.acceptances.requires_grad and not rows.missing.requires_grad
    assert rows.missing.min().item() > 0.01


def test_several_projections_are_added() -> None:
    """A frozen head and a trained low-rank one, as DSpark has: only the trained one gets a gradient."""
    divergence, loss = DIVERGENCES["tvp 0.5"]
    given, low_rank = problem().frozen(), problem(hidden=3, seed=2)
    draft = [given.draft, low_rank.draft]
    logits = given.hidden @ given.weight.T + low_rank.hidden @ low_rank.weight.T
    leaves = (given.hidden, low_rank.hidden, low_rank.weight)
    exact = torch.autograd.grad(loss(given.labels, given.target_log_probs, logits).sum(), leaves)
    for total in (
        fused_values(draft, given.target, divergence, chunk=16).values.sum(),
        fused_sum(draft, given.target, divergence, chunk=16).total,
    ):
        for found, expected in zip(torch.autograd.grad(total, leaves), exact, strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-13)


def test_a_frozen_head_has_no_gradient() -> None:
    """And the target never has one, whatever it requires."""
    given = problem().frozen()
    target = TargetStates(
        hidden=given.target_hidden.requires_grad_(), weight=given.target_weight.requires_grad_(), log_normaliser=None
    )
    fused_sum(given.draft, target, Divergence(tvp=1.0, beta=0.5)).total.backward()
    fused_values(given.draft, target, Divergence(tvp=1.0, beta=0.5)).values.sum().backward()
    assert given.hidden.grad is not None
    assert given.weight.grad is None and target.hidden.grad is None and target.weight.grad is None


def test_without_gradients() -> None:
    """Catches work for a gradient that nobody can ask for."""
    given = problem()
    with torch.no_grad():
        values = fused_values(given.draft, given.target, Divergence(total_variation=1.0)).values
    assert not values.requires_grad
    torch.testing.assert_close(values, given.eager(DIVERGENCES["total_variation"][1]).detach())


def test_leading_axes() -> None:
    """Blocks of positions, with one weight for each place in a block."""
    divergence, loss = DIVERGENCES["tvp 0.5"]
    given = problem(24)
    exact = given.eager(loss).view(6, 4)
    draft = Projection(hidden=given.hidden.view(6, 4, 8), weight=given.weight)
    target = TargetStates(hidden=given.target_hidden.view(6, 4, 8), weight=given.target_weight)
    weights = losses.bound_weights(4)
    found = fused_sum(draft, target, divergence, weights=weights)
    torch.testing.assert_close(found.rows.values, exact.detach(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.total, (exact * weights).sum(), rtol=1e-12, atol=0)
