"""The residual law and its defined answer where nothing is left over."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from forerun.distributions import DenseLaw, Law, PointLaw, overlap
from forerun.verification import residual_law

weights = st.lists(st.floats(0.0, 1.0), min_size=4, max_size=4).filter(lambda row: sum(row) > 0.1)


def law(*probs: float) -> DenseLaw:
    """A one-row law proportional to the weights."""
    return DenseLaw(torch.tensor([[prob / sum(probs) for prob in probs]], dtype=torch.float64))


@given(target=weights, draft=weights)
def test_overlap_and_residual_make_up_the_target(target: list[float], draft: list[float]) -> None:
    """min(target, draft) + (1 - overlap) * residual = target: what makes speculative sampling exact."""
    left, right = law(*target), law(*draft)
    shared = float(overlap(left, right))
    rebuilt = torch.minimum(left.dense(), right.dense()) + (1.0 - shared) * residual_law(left, right).dense()
    assert torch.allclose(rebuilt, left.dense(), rtol=0.0, atol=1e-14)


def test_empty_residual_is_the_target() -> None:
    """Equal laws: rejection has probability zero, and 0 / 0 must not become NaN."""
    target, equal = law(0.5, 0.3, 0.2), law(0.5, 0.3, 0.2)
    assert residual_law(target, equal) is target
    point = PointLaw(torch.tensor([1]), 3)
    assert residual_law(point, point).dense().tolist() == [[0.0, 1.0, 0.0]]


def test_residual_of_nearly_equal_laws_is_a_law() -> None:
    """Division of one tiny number by another: 1e-300 left over is still a law."""
    target, draft = law(1.0, 1e-300), law(1.0, 0.0)
    assert residual_law(target, draft).dense().tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize(
    ("target", "draft"),
    [
        (PointLaw(torch.tensor([1]), 3), law(0.2, 0.5, 0.3)),
        (PointLaw(torch.tensor([1]), 3), PointLaw(torch.tensor([2]), 3)),
        (law(0.2, 0.5, 0.3), PointLaw(torch.tensor([2]), 3)),
        (law(0.0, 1.0, 0.0), PointLaw(torch.tensor([2]), 3)),
    ],
    ids=["point-dense", "point-point", "dense-point", "certain-dense-point"],
)
def test_point_laws_give_the_dense_answer(target: Law, draft: Law) -> None:
    """The shortcut for greedy targets against the formula."""
    dense = residual_law(DenseLaw(target.dense()), DenseLaw(draft.dense()))
    assert residual_law(target, draft).dense().tolist() == dense.dense().tolist()
    assert isinstance(residual_law(target, draft), PointLaw) == isinstance(target, PointLaw)
