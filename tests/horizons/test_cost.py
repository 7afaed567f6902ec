"""The cost table: profile, running means, outliers, filling, saved state."""

import json
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.errors import ForerunError
from forerun.horizons import CostTable, best_horizon
from forerun.horizons.isotonic import fill_between, isotonic


def test_profile_medians_and_filling() -> None:
    """Catches means (an outlier moves them), and costs invented outside the measured range."""
    table = CostTable.from_profile([(1, 2.0), (1, 2.0), (1, 90.0), (4, 5.0)])
    assert table.measured == (1, 4)
    assert table.seconds(5) == pytest.approx((math.inf, 2.0, 3.0, 4.0, 5.0, math.inf))
    assert table.seconds(1) == pytest.approx((math.inf, 2.0))
    assert CostTable().seconds(2) == (math.inf,) * 3


def test_staircase_survives_and_noise_does_not() -> None:
    """A step up stays a step; a cell cheaper than its shorter neighbour is noise and is pooled with it."""
    steps = CostTable.from_profile([(0, 1.0), (1, 1.0), (2, 1.0), (3, 2.0), (4, 2.0)])
    assert steps.seconds(4) == pytest.approx((1.0, 1.0, 1.0, 2.0, 2.0))
    noisy = CostTable.from_profile([(0, 1.0), (1, 1.5), (2, 1.3), (3, 2.0)])
    assert noisy.seconds(3) == pytest.approx((1.0, 1.4, 1.4, 2.0))


@given(st.lists(st.tuples(st.floats(0.1, 10.0), st.floats(0.5, 5.0)), min_size=1, max_size=7))
def test_isotonic_against_the_minimax_formula(points: list[tuple[float, float]]) -> None:
    """Oracle: fit_i = max over a <= i of min over b >= i of the weighted mean of points a..b."""
    values: list[float] = [value for value, _ in points]
    weights: list[float] = [weight for _, weight in points]

    def mean(a: int, b: int) -> float:
        total = math.fsum(v * w for v, w in zip(values[a : b + 1], weights[a : b + 1], strict=True))
        return total / math.fsum(weights[a : b + 1])

    size = len(points)
    oracle = [max(min(mean(a, b) for b in range(i, size)) for a in range(i + 1)) for i in range(size)]
    assert isotonic(values, weights) == pytest.approx(oracle)


def test_fill_between_one_point_and_none() -> None:
    assert fill_between({}) == []
    assert fill_between({2: 3.0}) == [math.inf, math.inf, 3.0]


def test_running_mean_in_log_time() -> None:
    """One round at one cell by hand. Catches a mean of seconds, and a rate that ignores the number of samples."""
    table = CostTable.from_profile([(2, 1.0)] * 99, level_rate=0.0)
    table.observe(2, math.e)
    assert table.seconds(2)[2] == pytest.approx(math.exp(0.05))
    young = CostTable.from_profile([(2, 1.0)], level_rate=0.0)
    young.observe(2, math.e)
    assert young.seconds(2)[2] == pytest.approx(math.exp(0.5))


def test_new_cell_needs_three_rounds() -> None:
    """Its first value is their median: one slow first call does not found a cell."""
    table = CostTable()
    table.observe(3, 50.0)
    table.observe(3, 1.0)
    assert table.measured == ()
    table.observe(3, 1.1)
    assert table.seconds(3)[3] == pytest.approx(1.1)


def test_common_slow_down_keeps_the_ratios() -> None:
    """All rounds take twice as long, and only horizon 4 is in use.

    Catches a table in which the horizon in use looks dear only because the others were measured on a quiet machine.
    """
    profile = [(k, 1.0 + 0.2 * k) for k in range(6) for _ in range(10)]
    hazards = [0.1] * 5
    shared, separate = CostTable.from_profile(profile), CostTable.from_profile(profile, level_rate=0.0)
    before = best_horizon(hazards, shared.seconds(5)).horizon
    for _ in range(200):
        shared.observe(4, 2.0 * 1.8)
        separate.observe(4, 2.0 * 1.8)
    assert shared.seconds(4)[4] == pytest.approx(3.6, rel=0.03)  # pooled with horizon 5, which nobody measured again
    assert shared.seconds(4)[0] == pytest.approx(2.0, rel=0.2)
    assert separate.seconds(4)[0] == pytest.approx(1.0)
    assert abs(best_horizon(hazards, shared.seconds(5)).horizon - before) <= 1
    assert best_horizon(hazards, separate.seconds(5)).horizon < before - 1


def test_outliers_are_dropped_and_a_lasting_change_is_believed() -> None:
    """Catches a stall that enters the table, and a gate that never lets a new speed in."""
    rng = random.Random(0)
    table = CostTable.from_profile([(0, 1.0)] * 20 + [(4, 2.0)] * 20)
    for _ in range(40):
        table.observe(4, 2.0 * math.exp(rng.gauss(0.0, 0.02)))
    quiet = table.seconds(4)[4]
    table.observe(4, 40.0)
    assert table.outliers == 1
    assert table.seconds(4)[4] == quiet
    table.observe(4, 2.0)  # an inlier in between: not in a row
    for _ in range(2):
        table.observe(4, 6.0)
    assert table.outliers == 3
    for _ in range(100):
        table.observe(4, 6.0)
    assert table.outliers == 3
    assert table.seconds(4)[4] == pytest.approx(6.0, rel=0.02)


def test_json_round_trip_continues_identically() -> None:
    rng = random.Random(1)
    table = CostTable.from_profile([(0, 1.0), (3, 1.7)])

    def use(one: CostTable, rounds: random.Random) -> None:
        for _ in range(60):
            horizon = rounds.randrange(5)
            one.observe(horizon, (1.0 + 0.2 * horizon) * math.exp(rounds.gauss(0.0, 0.1)))

    use(table, rng)
    table.observe(9, 3.0)  # waits for two more
    again = CostTable.from_json(table.to_json())
    assert again.seconds(9) == table.seconds(9)
    use(table, random.Random(2))
    use(again, random.Random(2))
    assert again.state_dict() == table.state_dict()
    assert json.loads(table.to_json())["format"] == "forerun-cost-table/1"


def test_copy_is_independent() -> None:
    table = CostTable.from_profile([(0, 1.0)])
    other = table.copy()
    other.observe(0, 5.0)
    assert table.seconds(0) == pytest.approx((1.0,))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a JSON"),
        ("[]", "expected an object"),
        ("{}", "missing keys"),
        (json.dumps({**CostTable().state_dict(), "cell_ratio": 1}), "unknown keys"),
        (json.dumps({**CostTable().state_dict(), "format": "other"}), "format is 'other'"),
        (json.dumps({**CostTable().state_dict(), "level": "0"}), "level: expected a finite number"),
        (json.dumps({**CostTable().state_dict(), "outliers": -1}), "outliers: expected a count"),
        (json.dumps({**CostTable().state_dict(), "cells": [{"horizon": 1}]}), "missing keys"),
    ],
)
def test_broken_files_are_refused(text: str, message: str) -> None:
    with pytest.raises(ForerunError, match=message):
        CostTable.from_json(text)


def test_unusable_times_are_refused() -> None:
    for horizon, seconds in ((-1, 1.0), (0, 0.0), (0, -1.0), (0, math.nan), (0, math.inf)):
        with pytest.raises(ForerunError):
            CostTable().observe(horizon, seconds)
    with pytest.raises(ForerunError, match="empty profile"):
        CostTable.from_profile([])
    with pytest.raises(ForerunError, match="cell_rate"):
        CostTable(cell_rate=0.0)
