"""What every function of draft logits promises, checked on all of them."""

import inspect
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import forerun.losses
from forerun.errors import ForerunError
from forerun.losses import acceptance, cross_entropy, forward_kl, masked_sum, token_acceptance, total_variation, tvp

Values = Callable[[Tensor, Tensor, Tensor], Tensor]  # (labels, target_log_probs, draft_logits) -> values

LOSSES: dict[str, Values] = {
    "cross_entropy": lambda labels, target, draft: cross_entropy(labels, draft),
    "forward_kl": lambda labels, target, draft: forward_kl(target, draft),
    "total_variation": lambda labels, target, draft: total_variation(target, draft),
    "tvp 0": lambda labels, target, draft: tvp(target, draft, beta=0.0),
    "tvp 0.5": lambda labels, target, draft: tvp(target, draft, beta=0.5),
    "tvp 1": lambda labels, target, draft: tvp(target, draft, beta=1.0),
}
METRICS: dict[str, Values] = {
    "acceptance": lambda labels, target, draft: acceptance(target, draft),
    "token_acceptance": token_acceptance,
}
ALL = LOSSES | METRICS

each_loss = pytest.mark.parametrize("name", LOSSES)
each_metric = pytest.mark.parametrize("name", METRICS)
each_function = pytest.mark.parametrize("name", ALL)


def inputs(*batch: int, vocab: int = 11, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    target, draft = (torch.randn(2, *batch, vocab, generator=generator, dtype=torch.float64) * 2).to(dtype)
    labels = torch.randint(vocab, batch, generator=generator)
    return labels, target.double().log_softmax(-1).to(dtype), draft


def test_nothing_escapes_this_suite() -> None:
    """A new loss that is not listed here would be exempt from the contract."""
    public = [(name, vars(forerun.losses)[name]) for name in forerun.losses.__all__]
    takes_logits = {
        name
        for name, item in public
        if inspect.isfunction(item) and "draft_logits" in inspect.signature(item).parameters
    }
    assert takes_logits == {name.split()[0] for name in ALL}


@each_function
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_float32_inside_half_precision(name: str, dtype: torch.dtype) -> None:
    """Catches arithmetic in the dtype that came in: the result must be bitwise that of the same numbers in float32."""
    labels, target, draft = inputs(6, dtype=dtype)
    values = ALL[name](labels, target, draft)
    assert values.dtype == torch.float32
    assert torch.equal(values, ALL[name](labels, target.float(), draft.float()))


@each_function
def test_float64_stays(name: str) -> None:
    labels, target, draft = inputs(6)
    assert ALL[name](labels, target, draft).dtype == torch.float64


@each_function
def test_one_value_per_position(name: str) -> None:
    """Catches a hidden reduction, and any leakage from one position to another."""
    labels, target, draft = inputs(2, 3)
    values = ALL[name](labels, target, draft)
    assert values.shape == (2, 3)
    for i in range(2):
        for j in range(3):
            alone = ALL[name](labels[i, j], target[i, j], draft[i, j])
            torch.testing.assert_close(alone, values[i, j], rtol=1e-13, atol=1e-15)


@each_function
def test_no_positions(name: str) -> None:
    assert ALL[name](*inputs(0)).shape == (0,)


@each_loss
def test_target_is_detached(name: str) -> None:
    """Catches a trainable target: a teacher that moves towards its student."""
    labels, target, draft = inputs(4)
    target.requires_grad_()
    draft.requires_grad_()
    torch.autograd.backward(LOSSES[name](labels, target, draft).sum())
    assert target.grad is None
    assert draft.grad is not None
    assert draft.grad.abs().sum(-1).min().item() > 1e-3


@each_metric
def test_metrics_are_detached(name: str) -> None:
    """A confidence head trained on this label must not train the law it is a label of."""
    labels, target, draft = inputs(4)
    assert not METRICS[name](labels, target.requires_grad_(), draft.requires_grad_()).requires_grad


@each_loss
def test_gradient_by_central_differences(name: str) -> None:
    labels, target, draft = inputs(3, vocab=6)
    assert torch.autograd.gradcheck(lambda logits: LOSSES[name](labels, target, logits), draft.requires_grad_())


@each_loss
def test_mask_equals_dropping_the_rows(name: str) -> None:
    """Catches a masked row that still moves the mean or the weights, here rows with laws that share no token."""
    labels, target, draft = inputs(8)
    mask = torch.tensor([True, False, True, True, False, False, True, False])
    target[~mask] = torch.tensor([0.0] + [-math.inf] * 10, dtype=torch.float64)
    draft[~mask, 0] = -math.inf
    gradients = []
    means = []
    for rows in (slice(None), mask):
        logits = draft[rows].clone().requires_grad_()
        mean = masked_sum(LOSSES[name](labels[rows], target[rows], logits), mask[rows]).mean()
        gradients.append(torch.autograd.grad(mean, logits)[0])
        means.append(mean.item())
    assert means[0] == pytest.approx(means[1], rel=1e-13)
    torch.testing.assert_close(gradients[0][mask], gradients[1], rtol=1e-13, atol=1e-16)
    assert gradients[0][~mask].abs().max().item() == 0


HARD_ROWS = {
    "one-hot target": ([0.0, -math.inf, -math.inf], [1.0, 2.0, 3.0]),
    "one-hot draft on it": ([0.0, -math.inf, -math.inf], [0.0, -math.inf, -math.inf]),
    "draft excludes it": ([0.0, -math.inf, -math.inf], [-math.inf, 0.0, 0.0]),
    "underflow": ([math.log(0.5), math.log(0.5), -math.inf], [-3e4, 0.0, 3e4]),
    "identical": ([math.log(0.2), math.log(0.3), math.log(0.5)], [math.log(0.2), math.log(0.3), math.log(0.5)]),
    "all target mass outside": ([-math.inf, -math.inf, -math.inf], [0.0, 1.0, 2.0]),
}


@each_function
@pytest.mark.parametrize("row", HARD_ROWS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_no_nan_at_the_limits(name: str, row: str, dtype: torch.dtype) -> None:
    """Catches 0 * inf and inf - inf, in value and in gradient; only CE and KL of an excluded token are infinite."""
    target, draft = (torch.tensor(values, dtype=dtype) for values in HARD_ROWS[row])
    draft.requires_grad_()
    value = ALL[name](torch.tensor(0), target, draft)
    infinite = row == "draft excludes it" and name in {"cross_entropy", "forward_kl"}
    assert value.isposinf().item() if infinite else value.isfinite().item()
    assert value.item() >= 0
    if name in LOSSES:
        (gradient,) = torch.autograd.grad(value, draft)
        assert gradient.isfinite().all()


@each_function
def test_broken_logits_are_not_hidden(name: str) -> None:
    """Catches a guard for 0 * inf that also swallows NaN: a diverged run must look diverged, at that position only."""
    labels, target, draft = inputs(3)
    draft[1, 4] = math.nan
    assert ALL[name](labels, target, draft).isnan().tolist() == [False, True, False]


@each_function
@pytest.mark.usefixtures("unchecked_shapes")
def test_misaligned_inputs_are_named(name: str) -> None:
    """Catches silent broadcasting of one row over a block, or of a full row against a pruned one."""
    labels, target, draft = inputs(4)
    with pytest.raises(ForerunError, match="draft_logits"):
        ALL[name](labels[:1], target[:1], draft)
    if name != "cross_entropy":
        with pytest.raises(ForerunError, match="pruned draft vocabulary"):
            ALL[name](labels, target[:, :5], draft)
