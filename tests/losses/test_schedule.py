"""Schedules of beta (C42)."""

import math
from collections.abc import Callable

import pytest

from forerun.errors import ForerunError
from forerun.losses import fixed_beta, linear_beta, reversed_beta

Schedule = Callable[[int, int], float]


def test_linear_over_the_first_80_percent() -> None:
    """C42. Catches annealing over the whole run, and a denominator of total - 1."""
    assert [linear_beta(step, 100) for step in (0, 40, 80, 99)] == [0.0, 0.5, 1.0, 1.0]
    betas = [linear_beta(step, 100) for step in range(81)]
    assert betas == pytest.approx([step / 80 for step in range(81)])


@pytest.mark.parametrize("start", [0.0, 0.25, 0.5])
def test_start_offset(start: float) -> None:
    """Catches an offset that shifts the ramp in time, or clips it, instead of starting it higher."""
    assert [linear_beta(step, 100, start=start) for step in (0, 40, 80, 99)] == [start, (1 + start) / 2, 1.0, 1.0]


def test_reversed() -> None:
    assert [reversed_beta(step, 100) for step in (0, 40, 80, 99)] == [1.0, 0.5, 0.0, 0.0]


def test_fixed() -> None:
    assert {fixed_beta(step, 100, beta=0.5) for step in range(100)} == {0.5}


def test_fraction() -> None:
    assert [linear_beta(step, 10, fraction=1.0) for step in (0, 5, 9)] == [0.0, 0.5, 0.9]


@pytest.mark.parametrize("total", [1, 3, 7, 1000])
def test_stays_in_range_and_monotone(total: int) -> None:
    """Budgets that 0.8 does not divide: beta must stay inside [0, 1], where D_beta is defined, and end at 1."""
    betas = [linear_beta(step, total) for step in range(total + 5)]
    assert betas == sorted(betas)
    assert betas[0] == 0.0
    assert betas[total] == betas[-1] == 1.0
    assert [reversed_beta(step, total) for step in range(total + 5)] == [1.0 - beta for beta in betas]


@pytest.mark.parametrize(
    "schedule", [linear_beta, reversed_beta, lambda step, total_steps: fixed_beta(step, total_steps, beta=0.5)]
)
def test_wrong_use(schedule: Schedule) -> None:
    with pytest.raises(ForerunError, match="total_steps is 0"):
        schedule(0, 0)
    with pytest.raises(ForerunError, match="step is -1"):
        schedule(-1, 10)


def test_wrong_parameters() -> None:
    with pytest.raises(ForerunError, match=r"beta is 1\.5"):
        fixed_beta(0, 10, beta=1.5)
    with pytest.raises(ForerunError, match=r"beta is -0\.5"):
        linear_beta(0, 10, start=-0.5)
    for fraction in (0.0, 1.5, math.nan):
        with pytest.raises(ForerunError, match="fraction is"):
            linear_beta(0, 10, fraction=fraction)
