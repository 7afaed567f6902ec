"""Overlap and total variation by definition, and alike for every representation of a law."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from forerun.distributions import DenseLaw, Law, PointLaw, overlap, total_variation

weights = st.lists(st.floats(0.0, 1.0), min_size=4, max_size=4).filter(lambda row: sum(row) > 0.1)


def law(row: list[float]) -> DenseLaw:
    """A one-row law proportional to the weights."""
    return DenseLaw(torch.tensor([[weight / sum(row) for weight in row]], dtype=torch.float64))


@given(target=weights, draft=weights)
def test_overlap_is_one_minus_half_the_distance(target: list[float], draft: list[float]) -> None:
    """TV is half the L1 distance: a formula other than the one used."""
    left, right = law(target), law(draft)
    half_l1 = float((left.dense() - right.dense()).abs().sum()) / 2
    assert float(total_variation(left, right)) == pytest.approx(half_l1, abs=1e-14)
    assert float(overlap(left, right)) == float(overlap(right, left))
    assert 0.0 <= float(overlap(left, right)) <= 1.0
    assert float(overlap(left, left)) == pytest.approx(1.0, abs=1e-15)


@pytest.mark.parametrize("kind", ["point-dense", "dense-point", "point-point"])
def test_point_laws_shortcut_is_the_dense_answer(kind: str) -> None:
    """The cheap paths must not swap target and draft or forget the unequal case."""
    point: Law = PointLaw(torch.tensor([0, 2]), 3)
    other: Law = DenseLaw(torch.tensor([[0.25, 0.5, 0.25], [0.5, 0.5, 0.0]], dtype=torch.float64))
    target, draft = {
        "point-dense": (point, other),
        "dense-point": (other, point),
        "point-point": (point, PointLaw(torch.tensor([0, 1]), 3)),
    }[kind]
    expected = torch.minimum(target.dense(), draft.dense()).sum(-1)
    assert torch.equal(overlap(target, draft), expected)


def test_rounding_does_not_push_overlap_above_one() -> None:
    """An overlap of 1 + 2e-16 would make a negative hazard."""
    row = torch.full((1, 49), 1 / 49, dtype=torch.float64)
    for size in range(3, 50):
        uniform = DenseLaw(row[:, :size] * (49 / size))
        assert float(overlap(uniform, uniform)) <= 1.0
        assert float(total_variation(uniform, uniform)) >= 0.0
