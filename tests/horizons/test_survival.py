"""Hazards to survivals to gains, and the choice of the horizon."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.errors import ForerunError
from forerun.horizons import best_horizon, gains, survivals

HAZARD = st.floats(min_value=0.0, max_value=1.0)
# Sums of at most 12 products of numbers in [0, 1]: rounding stays below this.
TOLERANCE = 1e-12


def test_hazards_to_gains() -> None:
    """C37, first half. Catches s_j built from the sum of hazards, and a G without the bonus token."""
    curve = survivals([0.1, 0.5, 0.9])
    assert curve == pytest.approx([0.9, 0.45, 0.045], abs=TOLERANCE)
    assert gains(curve) == pytest.approx([1.0, 1.9, 2.35, 2.395], abs=TOLERANCE)


def test_choice_depends_on_cost() -> None:
    """C37, second half. Catches an argmax of G alone, and a choice that cannot be 0."""
    hazards = [0.1, 0.5, 0.9]
    cheap = [1.0 + 0.2 * k for k in range(4)]
    dear = [1.0 + k for k in range(4)]
    ratios = [gain / cost for gain, cost in zip(gains(survivals(hazards)), cheap, strict=True)]
    assert ratios == pytest.approx([1.0, 1.58333, 1.67857, 1.49688], abs=1e-5)
    assert best_horizon(hazards, cheap).horizon == 2
    assert best_horizon(hazards, dear).horizon == 0
    assert best_horizon(hazards, cheap).survivals == tuple(survivals(hazards))


def test_ties_go_to_the_smaller_horizon() -> None:
    """C37. All numbers are dyadic, so the ratios are exactly equal; catches `>=`."""
    assert best_horizon([0.0, 0.0], [1.0, 2.0, 3.0]).horizon == 0
    assert best_horizon([0.5, 0.0], [4.0, 1.5, 2.0]).horizon == 1


@pytest.mark.parametrize("bad", [math.nan, -0.1, 1.1, math.inf, -math.inf])
def test_invalid_hazard_is_a_rejection_and_counted(bad: float) -> None:
    """C37. Catches NaN that wins or loses every comparison in silence."""
    plan = best_horizon([0.0, bad, 0.0], [1.0, 1.01, 1.02, 1.03])
    assert plan == (1, (1.0, 0.0, 0.0), 1, 0)
    assert best_horizon([0.0, 1.0, 0.0], [1.0, 1.01, 1.02, 1.03]) == (1, (1.0, 0.0, 0.0), 0, 0)


def test_scan_looks_past_a_descent() -> None:
    """A staircase: 2 is worse than 1, 4 is best. Catches stopping at the first descent."""
    costs = [1.0, 1.1, 2.0, 2.0, 2.0]
    ratios = [gain / cost for gain, cost in zip(gains(survivals([0.0] * 4)), costs, strict=True)]
    assert ratios[1] > ratios[2]
    assert best_horizon([0.0] * 4, costs).horizon == 4


@pytest.mark.parametrize("costs", [[1.0], [1.0, 0.0], [1.0, -1.0], [1.0, math.nan], [math.inf, math.inf]])
def test_unusable_costs_are_refused(costs: list[float]) -> None:
    with pytest.raises(ForerunError):
        best_horizon([0.5], costs)


def test_infinite_cost_is_never_chosen() -> None:
    assert best_horizon([0.0, 0.0], [math.inf, 1.0, math.inf]).horizon == 1


@given(st.lists(HAZARD, max_size=12), st.data())
def test_choice_against_brute_force(hazards: list[float], data: st.DataObject) -> None:
    """Oracle: survivals as P(no rejection among the first j), by multiplying afresh for each j."""
    size = len(hazards) + 1
    costs = data.draw(st.lists(st.floats(min_value=0.1, max_value=10.0), min_size=size, max_size=size))
    ratios = []
    for horizon in range(size):
        tokens = 1.0 + math.fsum(math.prod(1.0 - h for h in hazards[:j]) for j in range(1, horizon + 1))
        ratios.append(tokens / costs[horizon])
    assert ratios[best_horizon(hazards, costs).horizon] >= max(ratios) - TOLERANCE * 10.0


@given(st.lists(st.tuples(HAZARD, HAZARD), min_size=1, max_size=10))
def test_telescoping_bounds(pairs: list[tuple[float, float]]) -> None:
    """papers.md 1.6: prediction error to gain error to throughput regret. Catches any slip in the recursion."""
    true, predicted = [list(column) for column in zip(*pairs, strict=True)]
    size = len(true)
    curve, guess = survivals(true), survivals(predicted)
    before = [1.0, *curve]
    for j in range(1, size + 1):
        terms = [
            before[i] * (true[i] - predicted[i]) * math.prod(1.0 - h for h in predicted[i + 1 : j]) for i in range(j)
        ]
        assert guess[j - 1] - curve[j - 1] == pytest.approx(math.fsum(terms), abs=TOLERANCE)
    error = max(abs(a - b) for a, b in zip(gains(curve), gains(guess), strict=True))
    linear = math.fsum((size - i) * before[i] * abs(true[i] - predicted[i]) for i in range(size))
    excess = math.fsum(before[i] * (true[i] - predicted[i]) ** 2 for i in range(size))
    assert error <= linear + TOLERANCE
    assert linear <= size**1.5 * math.sqrt(excess) + TOLERANCE
    costs = [1.0 + 0.3 * k for k in range(size + 1)]
    rates = [gain / cost for gain, cost in zip(gains(curve), costs, strict=True)]
    regret = max(rates) - rates[best_horizon(predicted, costs).horizon]
    assert regret <= 2.0 * size**1.5 * math.sqrt(excess) + TOLERANCE
