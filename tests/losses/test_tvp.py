"""D_beta: published values, the gradient derived three ways, limits, precision, pruned vocabularies."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from forerun.errors import ForerunError
from forerun.losses import LOG_RATIO_FLOOR, draft_rows, total_variation, tvp

BETAS = (0.0, 1e-6, 0.25, 0.5, 0.75, 1.0)


def log_law(*probs: float) -> Tensor:
    return torch.tensor(probs, dtype=torch.float64).log()


def definition(target_log_probs: Tensor, draft_logits: Tensor, beta: float) -> Tensor:
    """D_beta as it is written in the paper: probabilities, a power, no log space. The oracle for value and gradient."""
    target, draft = target_log_probs.exp(), draft_logits.softmax(-1)
    ratio = torch.minimum(torch.ones_like(target), draft / target)
    return -(target * ratio.log()).sum(-1) if beta == 0 else (target * (1 - ratio**beta)).sum(-1) / beta


def value_and_gradient(target_log_probs: Tensor, draft_logits: Tensor, beta: float) -> tuple[Tensor, Tensor]:
    draft_logits = draft_logits.detach().clone().requires_grad_()
    value = tvp(target_log_probs, draft_logits, beta=beta)
    (gradient,) = torch.autograd.grad(value.sum(), draft_logits)
    return value.detach(), gradient


def random_pair(seed: int, *shape: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    target, draft = torch.randn(2, *shape, generator=generator, dtype=torch.float64) * 2
    return target.log_softmax(-1), draft


@pytest.mark.parametrize(
    ("beta", "expected", "expected_gradient"),
    [
        (0.0, 0.579785, (-0.34, -0.14, 0.48)),
        (0.25, 0.525136, None),
        (0.5, 0.477647, (-0.203992, -0.132714, 0.336706)),
        (0.75, 0.436236, None),
        (1.0, 0.4, (-0.12, -0.12, 0.24)),
    ],
)
def test_published_values(beta: float, expected: float, expected_gradient: tuple[float, ...] | None) -> None:
    """C40. Catches a swapped target and draft, a lost 1/beta, a wrong exponent and a flipped gradient."""
    value, gradient = value_and_gradient(log_law(0.5, 0.3, 0.2), log_law(0.2, 0.2, 0.6), beta)
    assert value.item() == pytest.approx(expected, abs=1e-6)
    assert gradient.sum().item() == pytest.approx(0, abs=1e-15)
    if expected_gradient is not None:
        assert gradient.tolist() == pytest.approx(expected_gradient, abs=1e-6)


@pytest.mark.parametrize("beta", [0.0, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_gradient_is_that_of_the_definition(seed: int, beta: float) -> None:
    """The hand-written backward against autograd through the textbook formula, with an uneven upstream gradient."""
    target_log_probs, draft_logits = random_pair(seed, 4, 3, 17)
    upstream = torch.rand(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    draft_logits.requires_grad_()
    value, oracle = tvp(target_log_probs, draft_logits, beta=beta), definition(target_log_probs, draft_logits, beta)
    torch.testing.assert_close(value, oracle, rtol=1e-12, atol=1e-12)
    (gradient,) = torch.autograd.grad(value, draft_logits, upstream)
    (oracle_gradient,) = torch.autograd.grad(oracle, draft_logits, upstream)
    torch.testing.assert_close(gradient, oracle_gradient, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("beta", BETAS)
def test_gradient_is_that_of_the_value(beta: float) -> None:
    """Central differences of the value itself: value and backward cannot drift apart."""
    target_log_probs, draft_logits = random_pair(7, 3, 6)
    assert torch.autograd.gradcheck(lambda z: tvp(target_log_probs, z, beta=beta), draft_logits.requires_grad_())


@pytest.mark.parametrize(("beta", "expected"), [(0.25, 2.0), (0.5, 1.0), (0.75, 2 / 3), (1.0, 0.5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_missed_token(beta: float, expected: float, dtype: torch.dtype) -> None:
    """C41. Catches 0 * inf and a floor that bites where the value is finite."""
    for absent in (-math.inf, -2000.0):
        value, gradient = value_and_gradient(
            log_law(0.5, 0.5).to(dtype), torch.tensor([0.0, absent], dtype=dtype), beta
        )
        assert value.item() == pytest.approx(expected, rel=1e-6 if dtype == torch.float32 else 1e-10)
        assert gradient.tolist() == pytest.approx([0.0, 0.0], abs=1e-30)


def test_missed_token_at_beta_zero_is_floored_and_still_pulled_up() -> None:
    """C41 at beta 0, where D is infinite: the floor keeps the value finite but must not stop the gradient."""
    target_log_probs = log_law(0.5, 0.5)
    for absent, expected in ((-2000.0, [0.5, -0.5]), (-math.inf, [0.0, 0.0])):  # finite: pulled; -inf: not ours to give
        value, gradient = value_and_gradient(target_log_probs, torch.tensor([0.0, absent], dtype=torch.float64), 0.0)
        assert value.item() == pytest.approx(-0.5 * LOG_RATIO_FLOOR)
        assert gradient.tolist() == pytest.approx(expected)


def test_value_is_continuous_where_annealing_starts() -> None:
    """A floor at beta 0 alone makes the second step of a run jump from 52 to 500."""
    draft_logits = torch.tensor([0.0, -math.inf], dtype=torch.float64)
    values = [tvp(log_law(0.5, 0.5), draft_logits, beta=beta).item() for beta in (0.0, 1e-12, 1e-6, 1e-4, 1e-3, 1e-2)]
    assert values == sorted(values, reverse=True)
    assert values[0] - values[3] < 0.01 * values[0]


@pytest.mark.parametrize("beta", [1e-300, 1e-12, 1e-8, 1e-6, 1e-4])
def test_small_beta_keeps_its_digits(beta: float) -> None:
    """1 - r**beta in float32 loses every digit at beta 1e-8, and beta 1e-300 is 0/0; expm1 and the limit do not."""
    target_log_probs, draft_logits = random_pair(3, 5, 40)
    expected = tvp(target_log_probs, draft_logits, beta=0.0)
    oracle = expected - beta / 2 * (target_log_probs.exp() * log_ratio(target_log_probs, draft_logits) ** 2).sum(-1)
    value = tvp(target_log_probs.float(), draft_logits.float(), beta=beta)
    torch.testing.assert_close(value.double(), oracle, rtol=2e-6, atol=0)


def log_ratio(target_log_probs: Tensor, draft_logits: Tensor) -> Tensor:
    return (draft_logits.log_softmax(-1) - target_log_probs).clamp(max=0)


@pytest.mark.parametrize("beta", BETAS)
def test_equal_laws_cost_nothing(beta: float) -> None:
    """Catches m = target instead of 0 at equality, and rounding of the row sum read as mass outside (times 103)."""
    for seed, vocab, spread in ((0, 50, 1.0), (1, 151_936, 3.0), (2, 262_144, 0.1), (3, 262_144, 8.0)):
        logits = torch.randn(2, vocab, generator=torch.Generator().manual_seed(seed)) * spread
        value, gradient = value_and_gradient(logits.log_softmax(-1), logits, beta)
        assert value.abs().max().item() == 0
        assert gradient.abs().max().item() == 0


@pytest.mark.parametrize("beta", BETAS)
def test_one_hot_laws(beta: float) -> None:
    """Catches 0 * inf on every side of a one-hot: the value is phi_beta of the one ratio that counts."""
    target = torch.tensor([[0.0, -math.inf, -math.inf]] * 3, dtype=torch.float64)
    draft = torch.tensor([[0.0, 0.0, 0.0], [0.0, -math.inf, -math.inf], [0.0, -math.inf, 0.0]], dtype=torch.float64)
    value, gradient = value_and_gradient(target, draft, beta)
    ratios = (1 / 3, 1.0, 1 / 2)
    expected = [-math.log(ratio) if beta == 0 else (1 - ratio**beta) / beta for ratio in ratios]
    assert value.tolist() == pytest.approx(expected, rel=1e-8)
    pulls = [ratio**beta if ratio < 1 else 0.0 for ratio in ratios]
    assert gradient[:, 0].tolist() == pytest.approx(
        [pull * (ratio - 1) for pull, ratio in zip(pulls, ratios, strict=True)]
    )


def test_cold_start_has_a_gradient() -> None:
    """A uniform draft over a real vocabulary, a certain target: an epsilon in the log would leave gradient 0 here."""
    vocab = 151_936
    target_log_probs = torch.full((vocab,), -math.inf)
    target_log_probs[17] = 0.0
    value, gradient = value_and_gradient(target_log_probs, torch.zeros(vocab), 0.0)
    assert value.item() == pytest.approx(math.log(vocab), rel=1e-6)
    assert gradient[17].item() == pytest.approx(1 / vocab - 1, rel=1e-5)
    assert gradient.sum().item() == pytest.approx(0, abs=1e-4)  # 151,936 float32 terms
    _, vanished = value_and_gradient(target_log_probs, torch.zeros(vocab), 1.0)
    assert abs(vanished[17].item()) == pytest.approx(1 / vocab, rel=1e-4)  # why plain TV starts slowly


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_half_precision_logits(beta: float) -> None:
    """C44. Catches a softmax, a ratio or a sum taken in bfloat16 (3 to 31 % gradient error in other toolkits)."""
    target_log_probs, draft_logits = random_pair(11, 64, 300)
    target_log_probs, logits = target_log_probs.float(), draft_logits.bfloat16()
    exact_value, exact = value_and_gradient(target_log_probs.double(), logits.double(), beta)
    value, gradient = value_and_gradient(target_log_probs, logits.float(), beta)
    torch.testing.assert_close(value.double(), exact_value, rtol=1e-5, atol=0)
    assert ((gradient.double() - exact).norm(dim=-1) / exact.norm(dim=-1)).max().item() < 1e-5
    half_value, half_gradient = value_and_gradient(target_log_probs, logits, beta)
    assert half_value.dtype == torch.float32
    torch.testing.assert_close(half_value, value, rtol=0, atol=0)
    torch.testing.assert_close(half_gradient, gradient.bfloat16(), rtol=0, atol=0)


@given(seed=st.integers(0, 10_000), beta=st.sampled_from([0.0, 0.01, 0.25, 0.5, 1.0]), kept=st.integers(1, 8))
def test_pruned_vocabulary_is_a_full_one_with_nothing_outside(seed: int, beta: float, kept: int) -> None:
    """Catches a renormalised target, a forgotten constant and a gradient leaking from tokens the draft cannot say."""
    target_log_probs, full_logits = random_pair(seed, 3, 9)
    ids = torch.randperm(9, generator=torch.Generator().manual_seed(seed))[:kept]
    masked = torch.full_like(full_logits, -math.inf)
    masked[:, ids] = full_logits[:, ids]
    full_value, full_gradient = value_and_gradient(target_log_probs, masked, beta)
    value, gradient = value_and_gradient(draft_rows(target_log_probs, ids), full_logits[:, ids], beta)
    torch.testing.assert_close(value, full_value, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient, full_gradient[:, ids], rtol=1e-12, atol=1e-14)
    assert full_gradient.sum().item() == pytest.approx(full_gradient[:, ids].sum().item())


def test_mass_outside_costs_its_share_over_beta() -> None:
    """The constant itself, by hand: a draft exact inside a vocabulary that holds 0.9 of the target."""
    target_log_probs, draft_logits = log_law(0.6, 0.3), log_law(2 / 3, 1 / 3)
    for beta, expected in ((1.0, 0.1), (0.5, 0.2), (0.25, 0.4), (0.0, -0.1 * LOG_RATIO_FLOOR)):
        assert tvp(target_log_probs, draft_logits, beta=beta).item() == pytest.approx(expected, rel=1e-10)


@given(seed=st.integers(0, 10_000))
def test_beta_one_is_total_variation(seed: int) -> None:
    """Two implementations, one number, in value and gradient (mass outside included)."""
    target_log_probs, draft_logits = random_pair(seed, 4, 9)
    target_log_probs = target_log_probs[:, :8] - 0.1
    value, gradient = value_and_gradient(target_log_probs, draft_logits[:, :8], 1.0)
    logits = draft_logits[:, :8].clone().requires_grad_()
    oracle = total_variation(target_log_probs, logits)
    torch.testing.assert_close(value, oracle.detach(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient, torch.autograd.grad(oracle.sum(), logits)[0], rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("beta", [-0.1, 1.1, math.nan])
def test_beta_outside_its_range(beta: float) -> None:
    with pytest.raises(ForerunError, match="beta is"):
        tvp(log_law(0.5, 0.5), log_law(0.5, 0.5), beta=beta)
