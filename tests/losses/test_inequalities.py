"""Every inequality of the TVP family, as properties of random pairs of laws (float64).

Each is a theorem about the definitions, so one counter-example means that a function does not compute its definition.
"""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from forerun.losses import acceptance, forward_kl, jensen_shannon, lk_alpha, outside_mass, total_variation, tvp

SLACK = 1e-10  # float64 rounding of sums of up to 6 terms of at most 103 (the floored log-ratio)
BETAS = st.floats(0.0, 1.0)
FINITE_LOGITS = st.floats(-12.0, 12.0)
ANY_LOGITS = st.one_of(FINITE_LOGITS, st.just(-math.inf), st.just(-500.0), st.just(0.0))


@st.composite
def pairs(draw: st.DrawFn, draft_elements: st.SearchStrategy[float] = ANY_LOGITS) -> tuple[Tensor, Tensor]:
    """(target_log_probs, draft_logits): ties, one-hots, zero probabilities and underflow included."""
    size = draw(st.integers(1, 6))
    target, draft = (
        draw(st.lists(elements, min_size=size, max_size=size).filter(lambda row: max(row) > -math.inf))
        for elements in (ANY_LOGITS, draft_elements)
    )
    return torch.tensor(target, dtype=torch.float64).log_softmax(-1), torch.tensor(draft, dtype=torch.float64)


COVERED_PAIRS = pairs(FINITE_LOGITS)  # every token can be drafted: KL and -log(acceptance) are finite
PRUNED_PAIRS = st.tuples(pairs(), st.floats(0.05, 1.0)).map(
    lambda drawn: (drawn[0][0] + math.log(drawn[1]), drawn[0][1])
)


def gradient(target_log_probs: Tensor, draft_logits: Tensor, beta: float) -> Tensor:
    logits = draft_logits.clone().requires_grad_()
    return torch.autograd.grad(tvp(target_log_probs, logits, beta=beta), logits)[0]


@given(PRUNED_PAIRS, BETAS)
def test_between_total_variation_and_its_upper_bounds(pair: tuple[Tensor, Tensor], beta: float) -> None:
    """TV <= D_beta <= min(D_0, TV/beta)."""
    distance, divergence, coverage = total_variation(*pair), tvp(*pair, beta=beta), tvp(*pair, beta=0.0)
    assert distance - SLACK <= divergence <= coverage + SLACK
    assert divergence * beta <= distance + SLACK


@given(PRUNED_PAIRS, BETAS, BETAS)
def test_divergence_does_not_increase_with_beta(pair: tuple[Tensor, Tensor], first: float, second: float) -> None:
    low, high = sorted((first, second))
    assert tvp(*pair, beta=high) <= tvp(*pair, beta=low) + SLACK


@given(PRUNED_PAIRS)
def test_total_variation_is_the_rejected_mass(pair: tuple[Tensor, Tensor]) -> None:
    """TV = 1 - acceptance, both in [0, 1], and what lies outside the draft vocabulary is never accepted."""
    distance, accepted = total_variation(*pair), acceptance(*pair)
    torch.testing.assert_close(distance, 1 - accepted, rtol=0, atol=1e-12)
    assert -SLACK <= accepted <= 1 - outside_mass(pair[0]) + SLACK


@given(pairs(), BETAS)
def test_gradient_approaches_that_of_total_variation(pair: tuple[Tensor, Tensor], beta: float) -> None:
    """||g_beta - g_1||_1 <= 2 (1 - beta) TV."""
    distance = (gradient(*pair, beta) - gradient(*pair, 1.0)).abs().sum()
    assert distance <= 2 * (1 - beta) * total_variation(*pair) + SLACK


@given(pairs(), BETAS)
def test_gradient_is_flat_along_a_common_shift(pair: tuple[Tensor, Tensor], beta: float) -> None:
    """Adding a constant to all logits changes no law, so every gradient row sums to zero and is never NaN."""
    row = gradient(*pair, beta)
    assert row.isfinite().all()
    assert row.sum().abs() <= SLACK


@given(COVERED_PAIRS)
def test_coverage_is_one_sided_forward_kl(pair: tuple[Tensor, Tensor]) -> None:
    """KL <= D_0 <= KL + TV."""
    divergence, coverage = forward_kl(*pair), tvp(*pair, beta=0.0)
    assert divergence <= coverage + SLACK
    assert coverage <= divergence + total_variation(*pair) + SLACK


@given(COVERED_PAIRS)
def test_coverage_bounds_the_negative_log_acceptance(pair: tuple[Tensor, Tensor]) -> None:
    """-log(acceptance) <= D_0, and LK-alpha is that number; so is its gradient, TV's over the acceptance."""
    loss = lk_alpha(*pair)
    torch.testing.assert_close(loss, -acceptance(*pair).log(), rtol=0, atol=1e-10)
    assert loss <= tvp(*pair, beta=0.0) + SLACK


@given(COVERED_PAIRS)
def test_gradient_of_lk_alpha_is_that_of_total_variation_over_acceptance(pair: tuple[Tensor, Tensor]) -> None:
    """Where no token has equal probability under both laws: there the two take other subgradients."""
    target_log_probs, draft_logits = pair
    if bool(((draft_logits.log_softmax(-1) - target_log_probs).abs() < 1e-9).any()):
        return
    logits = draft_logits.clone().requires_grad_()
    (row,) = torch.autograd.grad(lk_alpha(target_log_probs, logits), logits)
    torch.testing.assert_close(row, gradient(*pair, 1.0) / acceptance(*pair), rtol=1e-8, atol=1e-10)


@given(PRUNED_PAIRS)
def test_jensen_shannon_is_bounded(pair: tuple[Tensor, Tensor]) -> None:
    """TV^2/2 <= JS <= TV log 2, mass outside included (Lin 1991): a bounded loss for laws that share nothing."""
    distance, divergence = total_variation(*pair), jensen_shannon(*pair)
    assert distance**2 / 2 - SLACK <= divergence <= distance * math.log(2) + SLACK
