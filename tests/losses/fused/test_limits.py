"""Point masses, excluded tokens, equal laws, large vocabularies, diverged runs."""

import math

import pytest
import torch
from torch import Tensor

from forerun import losses
from forerun.losses.fused import Divergence, Projection, TargetStates, TopKTarget, fused_values
from tests.support.fused import DIVERGENCES, problem

BETAS = (0.0, 1e-6, 0.5, 1.0)

# (target logits, draft logits); hidden states and heads that give them are these rows and the identity.
HARD_ROWS: dict[str, tuple[list[float], list[float]]] = {
    "one-hot target": ([0.0, -math.inf, -math.inf], [1.0, 2.0, 3.0]),
    "one-hot laws": ([0.0, -math.inf, -math.inf], [0.0, -math.inf, -math.inf]),
    "draft excludes it": ([0.0, -math.inf, -math.inf], [-math.inf, 0.0, 0.0]),
    "underflow": ([0.0, 0.0, -math.inf], [-3e4, 0.0, 3e4]),
    "identical": ([0.2, 0.3, -1.5], [0.2, 0.3, -1.5]),
}


def on_logits(target: Tensor, draft: Tensor, divergence: Divergence, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Values and gradients in the logits, which come in as biases: matrix products do not like infinities."""
    values, gradients = [], []
    for row in range(len(draft)):
        bias = draft[row].clone().requires_grad_()
        nothing = Projection(hidden=draft.new_zeros(1, 1), weight=draft.new_zeros(draft.shape[1], 1))
        law = TargetStates(hidden=nothing.hidden, weight=nothing.weight, bias=target[row])
        value = fused_values(nothing, law, divergence, bias=bias, labels=labels[row : row + 1]).values
        gradients.append(torch.autograd.grad(value.sum(), bias)[0])
        values.append(value.detach())
    return torch.cat(values), torch.stack(gradients)


@pytest.mark.parametrize("name", DIVERGENCES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_hard_rows(name: str, dtype: torch.dtype) -> None:
    """Catches 0 * inf and inf - inf, and limits that differ from those the eager losses define."""
    divergence, loss = DIVERGENCES[name]
    target = torch.tensor([rows[0] for rows in HARD_ROWS.values()], dtype=dtype)
    draft = torch.tensor([rows[1] for rows in HARD_ROWS.values()], dtype=dtype)
    labels = torch.zeros(len(target), dtype=torch.int64)
    values, gradients = on_logits(target, draft, divergence, labels)
    logits = draft.clone().requires_grad_()
    log_probs = target.log_softmax(-1)
    for row, case in enumerate(HARD_ROWS):
        # One row at a time: a NaN of the reference in one row must not excuse ours in another.
        expected = loss(labels[row], log_probs[row], logits[row])
        assert not values[row].isnan(), case
        assert gradients[row].isfinite().all(), case
        torch.testing.assert_close(values[row], expected.detach(), rtol=1e-5, atol=1e-6, msg=case)
        if case == "identical":  # at the kink of TV the reference takes rounding for a difference
            assert gradients[row].abs().max().item() < 1e-6 or "cross_entropy" in name or name == "everything"
            continue
        expected_gradient = torch.autograd.grad(expected, logits)[0][row]
        torch.testing.assert_close(gradients[row], expected_gradient, rtol=1e-5, atol=1e-6, msg=case)


def test_laws_without_a_common_token() -> None:
    """LK-alpha is infinite there and pulls nothing, instead of NaN."""
    target, draft = torch.tensor([[0.0, -math.inf]]), torch.tensor([[-math.inf, 0.0]])
    values, gradients = on_logits(target, draft, Divergence(lk_alpha=1.0), torch.tensor([0]))
    assert values.isposinf().all() and gradients.abs().max().item() == 0


def test_cold_start() -> None:
    """A uniform draft and a point-mass target over 151,936 tokens: the overlap is 7e-6 and the gradient is whole."""
    vocab = 151_936
    bias = torch.zeros(vocab, requires_grad=True)
    nothing = Projection(hidden=torch.zeros(1, 1), weight=torch.zeros(vocab, 1))
    with pytest.warns(UserWarning, match="top tokens"):
        target = TopKTarget(token_ids=torch.tensor([[7]]), log_probs=torch.zeros(1, 1))
        value = fused_values(nothing, target, Divergence(lk_alpha=1.0), bias=bias, chunk=16).values
    (gradient,) = torch.autograd.grad(value.sum(), bias)
    assert value.item() == pytest.approx(math.log(vocab), rel=1e-6)
    assert gradient[7].item() == pytest.approx(1 / vocab - 1, rel=1e-6)


@pytest.mark.parametrize("beta", BETAS)
def test_equal_laws_cost_exactly_nothing(beta: float) -> None:
    """Catches laws that are normalised in two ways: their last bits differ, and the kink turns bits into gradient."""
    given = problem(20, vocab=5000).to(torch.float32)
    target = TargetStates(hidden=given.hidden.detach(), weight=given.weight.detach())
    values = fused_values(given.draft, target, Divergence(tvp=1.0, beta=beta), chunk=16).values
    assert values.abs().max().item() == 0
    assert torch.autograd.grad(values.sum(), given.hidden)[0].abs().max().item() == 0


@pytest.mark.parametrize("beta", BETAS)
def test_vocabulary_of_262_thousand(beta: float) -> None:
    """Catches a row sum whose rounding is taken for mass outside: it costs 103 nats a unit at beta 0."""
    given = problem(2, vocab=262_144, hidden=4, seed=3)
    exact = losses.tvp(given.target_log_probs, given.hidden @ given.weight.T, beta=beta)
    exact_gradient = torch.autograd.grad(exact.sum(), given.hidden)[0]
    narrow = given.to(torch.float32)
    values = fused_values(narrow.draft, narrow.target, Divergence(tvp=1.0, beta=beta), chunk=16).values
    gradient = torch.autograd.grad(values.sum(), narrow.hidden)[0]
    torch.testing.assert_close(values.double(), exact, rtol=1e-5, atol=0)
    assert float((gradient.double() - exact_gradient).norm() / exact_gradient.norm()) < 1e-5


def test_a_diverged_row_looks_diverged() -> None:
    """Catches a guard that swallows NaN, and one that spreads it to other positions."""
    given = problem(20)
    hidden = given.hidden.detach().clone()
    hidden[5] = math.nan
    for divergence, _ in DIVERGENCES.values():
        draft = Projection(hidden=hidden.requires_grad_(), weight=given.weight.detach())
        values = fused_values(draft, given.target, divergence, labels=given.labels.clamp(min=0), chunk=16).values
        assert values.isnan().nonzero().flatten().tolist() == [5]
        gradient = torch.autograd.grad(values.sum(), hidden)[0]
        assert gradient.isnan().any(-1).nonzero().flatten().tolist() == [5]


def test_lk_alpha_of_tiny_overlap() -> None:
    """Catches a product of probabilities where logarithms are needed: alpha is 1e-50 here, 0 in float32."""
    target, draft = torch.tensor([[0.0, -200.0]]), torch.tensor([[-115.0, 0.0]])
    values, gradients = on_logits(target, draft, Divergence(lk_alpha=1.0), torch.tensor([0]))
    assert values.item() == pytest.approx(losses.lk_alpha(target.double().log_softmax(-1), draft.double()).item())
    assert gradients.tolist()[0] == pytest.approx([-1.0, 1.0])
