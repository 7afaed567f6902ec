"""Cross-entropy, forward KL and total variation: values and gradients by hand, pruned vocabularies."""

import math

import pytest
import torch
from torch import Tensor

from forerun.losses import OUTSIDE, cross_entropy, forward_kl, masked_sum, total_variation

TARGET = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
DRAFT = torch.tensor([0.2, 0.2, 0.6], dtype=torch.float64)


def gradient(value: Tensor, logits: Tensor) -> list[float]:
    row: list[float] = torch.autograd.grad(value.sum(), logits)[0].tolist()
    return row


def draft_logits() -> Tensor:
    return (DRAFT.log() + 3.0).requires_grad_()  # the shift catches a loss that takes logits for log-probabilities


def test_cross_entropy() -> None:
    logits = draft_logits()
    value = cross_entropy(torch.tensor(1), logits)
    assert value.item() == pytest.approx(-math.log(0.2))
    assert gradient(value, logits) == pytest.approx([0.2, -0.8, 0.6])


def test_cross_entropy_is_an_unbiased_sample_of_forward_kl() -> None:
    """Mean over data tokens drawn from the target: same gradient, and KL = mean CE - target entropy."""
    logits = draft_logits()
    mean = (TARGET * cross_entropy(torch.arange(3), logits.expand(3, 3))).sum()
    divergence = forward_kl(TARGET.log(), logits)
    assert divergence.item() == pytest.approx(mean.item() + (TARGET * TARGET.log()).sum().item())
    assert gradient(mean, logits) == pytest.approx(gradient(divergence, logits))


def test_label_outside_the_draft_vocabulary_is_masked() -> None:
    """Catches training on token 0 in its place (the id a clamp leaves behind) and on other frameworks' -100."""
    logits = torch.zeros(3, 4, requires_grad=True)
    labels = torch.tensor([OUTSIDE, 2, -100])
    values = cross_entropy(labels, logits)
    assert values.tolist() == pytest.approx([0.0, math.log(4), 0.0])
    mean = masked_sum(values, labels >= 0).mean()
    assert mean.item() == pytest.approx(math.log(4))
    (rows,) = torch.autograd.grad(mean, logits)
    assert rows[[0, 2]].abs().max().item() == 0
    assert rows[1].tolist() == pytest.approx([0.25, 0.25, -0.75, 0.25])


def test_label_beyond_the_vocabulary_is_an_error() -> None:
    with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
        cross_entropy(torch.tensor([4]), torch.zeros(1, 4))


def test_forward_kl() -> None:
    logits = draft_logits()
    value = forward_kl(TARGET.log(), logits)
    expected = 0.5 * math.log(0.5 / 0.2) + 0.3 * math.log(0.3 / 0.2) + 0.2 * math.log(0.2 / 0.6)
    assert value.item() == pytest.approx(expected)
    assert gradient(value, logits) == pytest.approx([-0.3, -0.1, 0.4])


def test_forward_kl_renormalises_inside_a_pruned_vocabulary() -> None:
    """Catches a pruned row used as it is: its gradient would not vanish at the best draft the vocabulary allows."""
    logits = (TARGET[:2] / 0.8).log().requires_grad_()
    value = forward_kl(TARGET[:2].log(), logits)
    assert value.item() == pytest.approx(0, abs=1e-15)
    assert gradient(value, logits) == pytest.approx([0.0, 0.0], abs=1e-15)


def test_forward_kl_of_an_excluded_token_keeps_its_gradient() -> None:
    logits = torch.tensor([0.0, -math.inf], requires_grad=True)
    value = forward_kl(torch.tensor([0.5, 0.5]).log(), logits)
    assert value.item() == math.inf
    assert gradient(value, logits) == pytest.approx([0.5, -0.5])


def test_total_variation() -> None:
    """Against half the L1 distance and the published gradient of C40 at beta 1."""
    logits = draft_logits()
    value = total_variation(TARGET.log(), logits)
    assert value.item() == pytest.approx((TARGET - DRAFT).abs().sum().item() / 2)
    assert gradient(value, logits) == pytest.approx([-0.12, -0.12, 0.24])


def test_total_variation_counts_what_a_pruned_vocabulary_cannot_say() -> None:
    logits = (TARGET[:2] / 0.8).log().requires_grad_()
    value = total_variation(TARGET[:2].log(), logits)
    assert value.item() == pytest.approx(0.2)
    assert gradient(value, logits) == pytest.approx([0.0, 0.0], abs=1e-15)
