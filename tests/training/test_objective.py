"""Objectives as a recipe holds them: their values, their schedules, their words."""

import pytest
import torch

from forerun.losses import OUTSIDE
from forerun.training import TVP, CrossEntropy, ForwardKL, Objective, TotalVariation

TARGET = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
DRAFT = torch.tensor([0.2, 0.2, 0.6], dtype=torch.float64)


def value(objective: Objective, *, step: int = 0, label: int = 1) -> float:
    """On the laws of C40, at one step of a hundred."""
    values = objective.values(TARGET.log()[None], DRAFT.log()[None], torch.tensor([label]), step=step, total_steps=100)
    assert values.shape == (1,)
    return float(values)


def test_linear_beta_is_one_from_four_fifths_on() -> None:
    """C42. Catches a schedule that ends with the run, or counts steps from one."""
    betas = [TVP().beta_at(step, 100) for step in range(100)]
    assert betas[0] == 0.0 and betas[40] == pytest.approx(0.5) and betas[80] == betas[99] == 1.0
    assert betas == sorted(betas)


def test_the_other_schedules() -> None:
    assert TVP(beta=0.25).beta_at(0, 100) == 0.25
    assert TVP(beta=0.25).beta_at(40, 100) == pytest.approx(0.625)
    assert TVP(schedule="fixed", beta=0.5).beta_at(99, 100) == TVP(schedule="fixed", beta=0.5).beta_at(0, 100) == 0.5
    assert TVP(schedule="reversed").beta_at(0, 100) == 1.0
    assert TVP(schedule="reversed").beta_at(40, 100) == pytest.approx(0.5)
    assert TVP(schedule="reversed").beta_at(80, 100) == 0.0
    assert TVP(fraction=0.5).beta_at(25, 100) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("objective", "step", "expected"),
    [
        (TVP(), 0, 0.579785),
        (TVP(), 20, 0.525136),
        (TVP(), 40, 0.477647),
        (TVP(), 60, 0.436236),
        (TVP(), 80, 0.4),
        (TVP(), 99, 0.4),
        (TotalVariation(), 0, 0.4),
        (ForwardKL(), 0, 0.5 * 0.916291 + 0.3 * 0.405465 - 0.2 * 1.098612),
        (CrossEntropy(), 0, 1.609438),
    ],
)
def test_values_of_c40(objective: Objective, step: int, expected: float) -> None:
    """Catches a step that does not reach the schedule, arguments that are swapped, and a loss under another name."""
    assert value(objective, step=step) == pytest.approx(expected, abs=2e-6)


def test_only_cross_entropy_looks_at_the_data_token() -> None:
    """Catches an objective that learns from the one token that happened to be drawn."""
    for objective in (TVP(), TotalVariation(), ForwardKL()):
        assert value(objective, label=0) == value(objective, label=2) == value(objective, label=OUTSIDE)
    assert value(CrossEntropy(), label=2) == pytest.approx(0.510826, abs=1e-6)
    assert value(CrossEntropy(), label=OUTSIDE) == 0.0


def test_positions_that_count() -> None:
    labels = torch.tensor([[0, OUTSIDE], [OUTSIDE, 2]])
    for objective in (TVP(), TotalVariation(), ForwardKL()):
        assert objective.has_value(labels).all()
    assert CrossEntropy().has_value(labels).tolist() == [[True, False], [False, True]]


def test_descriptions_tell_objectives_apart() -> None:
    """Catches a resume that takes one schedule for another: the description is the run's identity."""
    objectives = [
        TVP(), TVP(beta=0.25), TVP(fraction=0.7), TVP(schedule="fixed"), TVP(schedule="reversed"),
        TVP(schedule="fixed", beta=0.5), TotalVariation(), ForwardKL(), CrossEntropy(),
    ]  # fmt: skip
    assert len({objective.describe() for objective in objectives}) == len(objectives)
