"""What every function of draft logits promises, checked on all of them."""

import inspect
import math

import pytest
import torch
from torch import Tensor

import forerun.losses
from forerun.errors import ForerunError
from forerun.losses import masked_sum
from tests.support.losses import ALL, BLOCK_LOSSES, LOSSES, OTHERS, POSITION_LOSSES, POSITION_METRICS, STOPPED

each_loss = pytest.mark.parametrize("name", LOSSES)
each_metric = pytest.mark.parametrize("name", POSITION_METRICS)
each_function = pytest.mark.parametrize("name", ALL)
each_position_function = pytest.mark.parametrize("name", POSITION_LOSSES | POSITION_METRICS)

ALL_VALID = torch.ones((), dtype=torch.bool)


def values_of(name: str, labels: Tensor, target: Tensor, draft: Tensor, mask: Tensor = ALL_VALID) -> Tensor:
    return ALL[name](labels, target, draft, mask.expand(labels.shape))


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
    assert takes_logits == {name.split()[0] for name in ALL} | OTHERS.keys()


@each_function
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_float32_inside_half_precision(name: str, dtype: torch.dtype) -> None:
    """Catches arithmetic in the dtype that came in: the result must be bitwise that of the same numbers in float32."""
    labels, target, draft = inputs(6, dtype=dtype)
    values = values_of(name, labels, target, draft)
    assert values.dtype == torch.float32
    assert torch.equal(values, values_of(name, labels, target.float(), draft.float()))


@each_loss
def test_half_precision_logits_keep_the_gradient(name: str) -> None:
    """C44. Relative to float64 on the same bfloat16 numbers; other toolkits are 3 to 31 % off at vocabulary 300."""
    labels, target, draft = inputs(8, 4, vocab=300, dtype=torch.bfloat16)
    gradients = []
    for dtype in (torch.float32, torch.float64):
        logits = draft.to(dtype).requires_grad_()
        values = values_of(name, labels, target.to(dtype).log_softmax(-1), logits)
        gradients.append(torch.autograd.grad(values.sum(), logits)[0].double())
    assert ((gradients[0] - gradients[1]).norm() / gradients[1].norm()).item() < 1e-5


@each_function
def test_float64_stays(name: str) -> None:
    labels, target, draft = inputs(6)
    assert values_of(name, labels, target, draft).dtype == torch.float64


@each_position_function
def test_one_value_per_position(name: str) -> None:
    """Catches a hidden reduction, and any leakage from one position to another."""
    labels, target, draft = inputs(2, 3)
    values = values_of(name, labels, target, draft)
    assert values.shape == (2, 3)
    for i in range(2):
        for j in range(3):
            alone = values_of(name, labels[i, j], target[i, j], draft[i, j])
            torch.testing.assert_close(alone, values[i, j], rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("name", BLOCK_LOSSES)
def test_one_value_per_position_of_a_block(name: str) -> None:
    """Catches a hidden reduction, and any leakage from one block to another; and a lone block needs no batch axis."""
    labels, target, draft = inputs(2, 3, 4)
    values = values_of(name, labels, target, draft)
    assert values.shape == (2, 3, 4)
    for i in range(2):
        for j in range(3):
            alone = values_of(name, labels[i, j], target[i, j], draft[i, j])
            torch.testing.assert_close(alone, values[i, j], rtol=1e-13, atol=1e-15)


@each_function
def test_no_positions(name: str) -> None:
    assert values_of(name, *inputs(0, 3)).shape == (0, 3)
    assert values_of(name, *inputs(0)).shape == (0,)


@each_loss
def test_target_is_detached(name: str) -> None:
    """Catches a trainable target: a teacher that moves towards its student."""
    labels, target, draft = inputs(4)
    target.requires_grad_()
    draft.requires_grad_()
    torch.autograd.backward(values_of(name, labels, target, draft).sum())
    assert target.grad is None
    assert draft.grad is not None
    reached = draft.grad.abs().sum(-1)
    assert reached.max().item() > 1e-3
    if name in POSITION_LOSSES:
        assert reached.min().item() > 1e-3


@each_metric
def test_metrics_are_detached(name: str) -> None:
    """A confidence head trained on this label must not train the law it is a label of."""
    labels, target, draft = inputs(4)
    assert not values_of(name, labels, target.requires_grad_(), draft.requires_grad_()).requires_grad


@pytest.mark.parametrize("name", sorted(LOSSES.keys() - STOPPED))
def test_gradient_by_central_differences(name: str) -> None:
    labels, target, draft = inputs(3, vocab=6)
    assert torch.autograd.gradcheck(lambda logits: values_of(name, labels, target, logits), draft.requires_grad_())


@pytest.mark.parametrize("name", sorted(LOSSES.keys() - {"left_to_right", "draft_opd"}))
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
        mean = masked_sum(values_of(name, labels[rows], target[rows], logits, mask[rows]), mask[rows]).mean()
        gradients.append(torch.autograd.grad(mean, logits)[0])
        means.append(mean.item())
    assert means[0] == pytest.approx(means[1], rel=1e-13)
    torch.testing.assert_close(gradients[0][mask], gradients[1], rtol=1e-13, atol=1e-16)
    assert gradients[0][~mask].abs().max().item() == 0


@each_loss
@pytest.mark.parametrize("dropped", ["blocks", "ends"])
def test_mask_equals_dropping_blocks_and_their_ends(name: str, dropped: str) -> None:
    """The masks that training has: blocks that only fill the batch, and blocks that end with their text.

    The two losses that count places (a decay, a split in the middle) are checked here only: a hole would shift them.
    """
    labels, target, draft = inputs(5, 4)
    mask = torch.ones(5, 4, dtype=torch.bool)
    kept: tuple[slice | list[int], ...] = ([0, 2, 3],) if dropped == "blocks" else (slice(None), slice(0, 3))
    mask[:] = False
    mask[kept] = True
    target[~mask] = torch.tensor([0.0] + [-math.inf] * 10, dtype=torch.float64)
    draft[~mask, 0] = -math.inf
    accepted = torch.tensor([True, True, False, False])

    def mean_and_gradient(labels: Tensor, target: Tensor, draft: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        logits = draft.clone().requires_grad_()
        if name == "draft_opd":
            split = accepted[: labels.shape[1]].expand(labels.shape)
            values = forerun.losses.draft_opd(target, logits, split, mask)
        else:
            values = values_of(name, labels, target, logits, mask)
        mean = masked_sum(values, mask).mean()
        return mean.detach(), torch.autograd.grad(mean, logits)[0]

    whole_mean, whole_gradient = mean_and_gradient(labels, target, draft, mask)
    mean, gradient = mean_and_gradient(labels[kept], target[kept], draft[kept], mask[kept])
    torch.testing.assert_close(whole_mean, mean, rtol=1e-13, atol=0)
    torch.testing.assert_close(whole_gradient[kept], gradient, rtol=1e-12, atol=1e-16)
    assert whole_gradient[~mask].abs().max().item() == 0


HARD_ROWS = {
    "one-hot target": ([0.0, -math.inf, -math.inf], [1.0, 2.0, 3.0]),
    "one-hot draft on it": ([0.0, -math.inf, -math.inf], [0.0, -math.inf, -math.inf]),
    "draft excludes it": ([0.0, -math.inf, -math.inf], [-math.inf, 0.0, 0.0]),
    "underflow": ([math.log(0.5), math.log(0.5), -math.inf], [-3e4, 0.0, 3e4]),
    "identical": ([math.log(0.2), math.log(0.3), math.log(0.5)], [math.log(0.2), math.log(0.3), math.log(0.5)]),
    "all target mass outside": ([-math.inf, -math.inf, -math.inf], [0.0, 1.0, 2.0]),
}


LIKELIHOODS = {
    "argmax_cross_entropy", "ce_l1", "cross_entropy", "d_pace", "draft_opd", "dspark", "forward_kl", "left_to_right",
    "lk_alpha", "lk_lambda by position", "lk_lambda by token", "soft_cross_entropy", "tv_ce", "tv_kl",
}  # fmt: skip
"""Infinite where the draft cannot say the target's only token."""


@each_function
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_no_nan_at_the_limits(name: str, dtype: torch.dtype) -> None:
    """Catches 0 * inf and inf - inf, in value and in gradient; only likelihoods of an excluded token are infinite."""
    for row, (target_row, draft_row) in HARD_ROWS.items():
        draft = torch.tensor([draft_row], dtype=dtype, requires_grad=True)
        value = values_of(name, torch.tensor([0]), torch.tensor([target_row], dtype=dtype), draft)
        infinite = row == "draft excludes it" and name in LIKELIHOODS
        infinite |= row == "all target mass outside" and name == "lk_alpha"
        assert value.isposinf().item() if infinite else value.isfinite().item(), row
        assert value.item() >= 0, row
        if name in LOSSES:
            assert torch.autograd.grad(value.sum(), draft)[0].isfinite().all(), row


@pytest.mark.parametrize("name", BLOCK_LOSSES)
def test_no_nan_in_a_block_with_all_limits(name: str) -> None:
    """Catches a limit that spoils the gradient of its neighbours through a product or a running minimum."""
    target, draft = (torch.tensor(rows, dtype=torch.float64) for rows in zip(*HARD_ROWS.values(), strict=True))
    draft.requires_grad_()
    values = values_of(name, torch.zeros(len(HARD_ROWS), dtype=torch.int64), target, draft)
    assert not values.isnan().any()
    assert torch.autograd.grad(values.sum(), draft)[0].isfinite().all()


@each_function
def test_no_nan_at_the_largest_vocabulary(name: str) -> None:
    """262,144 tokens in float32: a cold draft for a certain target, one that is nearly right, one that is equal."""
    vocab = 262_144
    peaked = torch.full((3, vocab), -30.0)
    peaked[:, 5] = 20.0
    draft = torch.stack([torch.zeros(vocab), peaked[1] * 0.5, peaked[2]]).requires_grad_()
    values = values_of(name, torch.tensor([5, 5, 5]), peaked.log_softmax(-1), draft)
    assert values.isfinite().all()
    if name in LOSSES:
        assert torch.autograd.grad(values.sum(), draft)[0].isfinite().all()


@each_function
def test_broken_logits_are_not_hidden(name: str) -> None:
    """Catches a guard for 0 * inf that also swallows NaN: a diverged run must look diverged, and only where it is."""
    labels, target, draft = inputs(3, 2)
    draft[1, 1, 4] = math.nan
    broken = values_of(name, labels, target, draft).isnan()
    assert broken[1, 1]
    assert not broken[[0, 2]].any()
    if name not in BLOCK_LOSSES:
        assert not broken[1, 0]


@each_function
@pytest.mark.usefixtures("unchecked_shapes")
def test_misaligned_inputs_are_named(name: str) -> None:
    """Catches silent broadcasting of one row over a block, or of a full row against a pruned one."""
    labels, target, draft = inputs(4)
    with pytest.raises(ForerunError, match="draft_logits"):
        values_of(name, labels[:1], target[:1], draft)
    if name not in {"cross_entropy", "d_pace", "left_to_right"}:
        with pytest.raises(ForerunError, match="pruned draft vocabulary"):
            values_of(name, labels, target[:, :5], draft)
    if name in BLOCK_LOSSES:
        with pytest.raises(ForerunError, match="mask"):
            ALL[name](labels, target, draft, ALL_VALID)
