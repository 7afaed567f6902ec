"""The one reduction (C43)."""

import math

import pytest
import torch
from torch import Tensor

from forerun.errors import ForerunError
from forerun.losses import MaskedSum, bound_weights, masked_sum
from tests.support.processes import trained_by_two

VALUES = torch.tensor([[1.0, 1.0, 1.0, 9.0], [5.0, 9.0, 9.0, 9.0]])
MASK = torch.tensor([[True, True, True, False], [True, False, False, False]])


def test_every_valid_position_counts_once() -> None:
    """C43. Catches the mean of row means (3.0) and division by the padded length."""
    whole = masked_sum(VALUES, MASK)
    assert (whole.mean().item(), whole.count.item()) == (2.0, 4)


def test_pieces_add_up() -> None:
    """Two micro-batches or two processes give the number of one batch."""
    pieces = [masked_sum(VALUES[i], MASK[i]) for i in range(2)]
    assert (pieces[0] + pieces[1]).mean().item() == 2.0
    global_count = MASK.sum()
    assert sum(piece.share(global_count).item() for piece in pieces) == 2.0


def test_gradient_does_not_depend_on_the_cut() -> None:
    """Catches a micro-batch divided by its own count, which weighs positions of short rows more."""

    def gradient(cuts: list[slice]) -> Tensor:
        values = VALUES.double().requires_grad_()
        for rows in cuts:
            torch.autograd.backward(masked_sum(values[rows], MASK[rows], bound_weights(4)).share(MASK.sum()))
        assert values.grad is not None
        return values.grad

    whole = gradient([slice(0, 2)])
    torch.testing.assert_close(gradient([slice(0, 1), slice(1, 2)]), whole, rtol=1e-15, atol=0)
    torch.testing.assert_close(whole, MASK * bound_weights(4) / 4, rtol=1e-15, atol=0)


def test_all_masked_is_a_count_of_zero() -> None:
    """Not NaN, in value or gradient, and recognisable: the count says that the number means nothing."""
    values = VALUES.clone().requires_grad_()
    nothing = masked_sum(values, torch.zeros_like(MASK))
    torch.autograd.backward(nothing.mean())
    assert (nothing.count.item(), nothing.mean().item()) == (0, 0.0)
    assert values.grad is not None
    assert values.grad.abs().max().item() == 0
    assert (nothing + masked_sum(VALUES, MASK)).mean().item() == 2.0


def test_one_position_is_not_diluted() -> None:
    """Catches sum / (count + eps), which is biased most where the count is small."""
    assert masked_sum(torch.tensor([3.0], dtype=torch.float64), torch.tensor([True])).mean().item() == 3.0


def test_masked_values_may_be_anything() -> None:
    """Catches mask * value, which turns a masked inf into NaN."""
    values = torch.tensor([2.0, math.inf, math.nan], requires_grad=True)
    mean = masked_sum(values, torch.tensor([True, False, False])).mean()
    assert mean.item() == 2.0
    assert torch.autograd.grad(mean, values)[0].tolist() == [1.0, 0.0, 0.0]


def test_weights_multiply_and_do_not_normalise() -> None:
    """Count, not weight, is the divisor; and the positions axis is the last one."""
    weighted = masked_sum(VALUES, MASK, bound_weights(4))
    assert weighted.total.item() == pytest.approx(1 + 0.75 + 0.5 + 5)
    assert weighted.count.item() == 4
    assert weighted.total.dtype == torch.float32


@pytest.mark.usefixtures("unchecked_shapes")
def test_misaligned_inputs() -> None:
    with pytest.raises(ForerunError, match="mask"):
        masked_sum(VALUES, MASK[0])
    with pytest.raises(ForerunError, match="do not broadcast"):
        masked_sum(VALUES, MASK, bound_weights(3))
    with pytest.raises(ForerunError, match="do not broadcast"):
        masked_sum(VALUES[0], MASK[0], torch.ones(2, 4))


def test_pieces_are_values() -> None:
    """Two tensors and nothing else: they can be summed across processes as they are."""
    piece = MaskedSum(total=torch.tensor(6.0), count=torch.tensor(3))
    assert piece.mean().item() == 2.0


def test_one_sum_for_each_place() -> None:
    """What LK-lambda's paper averages: acceptance by draft position, over batch and sequence, valid ones only."""
    by_position = masked_sum(VALUES, MASK, by_position=True)
    assert by_position.count.tolist() == [2, 1, 1, 0]
    assert by_position.mean().tolist() == [3.0, 1.0, 1.0, 0.0]
    halves = masked_sum(VALUES[:1], MASK[:1], by_position=True) + masked_sum(VALUES[1:], MASK[1:], by_position=True)
    assert halves.mean().tolist() == by_position.mean().tolist()


def test_two_processes_give_the_number_of_one() -> None:
    """C43 across processes: 2.0, and the gradients of the single batch. Catches each process's own count."""
    found = trained_by_two(VALUES, MASK)
    whole = masked_sum(VALUES.double(), MASK, bound_weights(4)).mean().item()
    assert [loss for loss, _, _ in found] == pytest.approx([whole, whole])
    assert [row for _, row, _ in found] == (MASK * bound_weights(4) / 4).tolist()
    assert [unweighted for *_, unweighted in found] == [2.0, 2.0]
