"""The cost surface: cells, padding, what regression fills, drift, saved state."""

import json
import math
import random
from itertools import pairwise

import pytest

from forerun.errors import ForerunError
from forerun.horizons import (
    AMTP,
    Choice,
    CostSurface,
    CostTable,
    DraftTime,
    PassTime,
    RoundContext,
    RoundFeedback,
    read_costs,
)
from forerun.horizons.least_squares import RecursiveLeastSquares


def true_seconds(width: int, context: int, batch: int) -> float:
    return 1.0 + 0.05 * width + 0.2 * batch * context / 1000 + 0.04 * max(0, width - 16)


def profiled(*, pad_widths: tuple[int, ...] = (), contexts: tuple[int, ...] = (100, 1500)) -> CostSurface:
    passes = [
        PassTime(width=w, context_length=c, batch_size=b, seconds=(true_seconds(w, c, b),) * 5)
        for c in contexts
        for b, widths in ((1, (1, 2, 4, 8)), (4, (4, 16, 32)))
        for w in widths
    ]
    return CostSurface.from_profile(
        passes, [DraftTime(tokens=k, seconds=(0.02 * k,) * 3) for k in (1, 4)], pad_widths=pad_widths
    )


def told(width: int, seconds: float, *, drafted: int = 1, context: int = 100, batch: int = 1) -> RoundFeedback:
    return RoundFeedback(
        choice=Choice(horizon=drafted, planned=drafted, explored=False, propensities=(1.0,) * drafted),
        context=RoundContext(limit=8, context_length=context, generated=0, temperature=1.0, batch_size=batch),
        accepted=0,
        accept_probabilities=(0.5,) * drafted,
        overlaps=(0.5,) * drafted,
        seconds=seconds + 0.03 * drafted + 0.01,
        draft_seconds=0.03 * drafted,
        verify_seconds=seconds,
        verify_width=width,
    )


def test_parts_add_up_at_measured_cells() -> None:
    """Draft + verify by context and batch. Catches a row of another batch size or context, and a width off by one."""
    surface = profiled()
    for batch, horizon in ((1, 1), (1, 3), (4, 3)):
        for context in (100, 1500):
            expected = true_seconds(batch * (horizon + 1), context, batch) + 0.02 * horizon
            found = surface.seconds(3, context_length=context, batch_size=batch)[horizon]
            assert found == pytest.approx(expected, rel=0.02)
    assert surface.seconds(7, context_length=100)[5:] == (math.inf,) * 3  # drafts of 5 and more were never timed
    assert surface.measured == (0, 1, 4)


def test_nothing_is_known_without_measurements() -> None:
    """Without a table no trimming: an AMTP over an empty surface drafts the limit."""
    assert CostSurface().seconds(2) == (math.inf,) * 3
    policy = AMTP(costs=CostSurface(), epsilon=0.0, prior_hazards=(0.9,))
    context = RoundContext(limit=5, context_length=10, generated=1, temperature=1.0)
    assert policy.propose(context, uniform=0.5).horizon == 5


def test_padding_has_no_marginal_cost_and_no_line_across_the_last_bucket() -> None:
    """Catches interpolation inside a bucket, which invents a cost for slots that are there anyway."""
    surface = CostSurface(pad_widths=(1, 4, 8))
    for width, seconds in ((1, 1.0), (4, 1.5), (8, 2.5), (12, 9.0)):
        for _ in range(3):
            surface.observe_pass(width, 100, 1, seconds)
    curve = surface.verify_seconds(12, 100, 1)
    assert curve[2] == curve[3] == curve[4] == pytest.approx(1.5, rel=0.05)
    assert curve[5] == curve[8] == pytest.approx(2.5, rel=0.05)
    assert curve[9] < 5.0  # regression on from 8; a straight line to 12 would pass 4.1 here and 5.75 at 10
    assert curve[12] == pytest.approx(9.0, rel=0.05)


def test_regression_fills_what_no_cell_says() -> None:
    """Widths, contexts and batches that were never run, within 15 % of the truth, and never falling along the width."""
    rng = random.Random(4)
    surface = profiled()
    for _ in range(400):
        batch = rng.choice((1, 2, 4))
        width, context = batch * rng.randrange(1, 7), rng.choice((100, 400, 1500))
        surface.observe_pass(width, context, batch, true_seconds(width, context, batch) * rng.lognormvariate(0.0, 0.02))
    for width, context, batch in ((40, 100, 4), (9, 3000, 3), (12, 700, 1), (48, 1500, 8)):
        found = surface.verify_seconds(width, context, batch)[width]
        assert found == pytest.approx(true_seconds(width, 0.75 * 2 ** context.bit_length(), batch), rel=0.15)
    for batch in (1, 3, 8):
        curve = surface.verify_seconds(64, 700, batch).tolist()[1:]
        assert all(after >= before for before, after in pairwise(curve))


def test_least_squares_against_numbers_made_from_weights() -> None:
    """Non-negative weights are found; one wild value hardly moves them; a cause that cannot be negative stays at 0."""
    rng = random.Random(5)
    fit = RecursiveLeastSquares(3)
    for _ in range(300):
        x = (1.0, rng.random() * 4, rng.random() * 4)
        fit.observe(x, 2.0 + 0.5 * x[1] - 0.0 * x[2] + rng.gauss(0.0, 0.01))
    assert fit.weights == pytest.approx((2.0, 0.5, 0.0), abs=0.02)
    fit.observe((1.0, 1.0, 1.0), 500.0)
    assert fit.weights == pytest.approx((2.0, 0.5, 0.0), abs=0.05)


def test_a_lasting_change_is_noticed_and_followed() -> None:
    """Passes become twice as slow for good. Catches counts that keep an old speed alive."""
    surface = profiled()
    for _ in range(300):
        surface.observe_round(told(2, true_seconds(2, 100, 1)))
    assert surface.drifts == 0
    for _ in range(40):
        surface.observe_round(told(2, 2.0 * true_seconds(2, 100, 1)))
    assert surface.drifts >= 1
    assert surface.verify_seconds(2, 100, 1)[2] == pytest.approx(2.0 * true_seconds(2, 100, 1), rel=0.1)
    assert surface.outliers >= 1


def test_rounds_without_phases_are_refused() -> None:
    whole = RoundFeedback(
        choice=told(2, 1.0).choice,
        context=told(2, 1.0).context,
        accepted=0,
        accept_probabilities=(),
        overlaps=(),
        seconds=1.0,
    )
    with pytest.raises(ForerunError, match="phases"):
        CostSurface().observe_round(whole)
    with pytest.raises(ForerunError, match="rise"):
        CostSurface(pad_widths=(4, 2))


def test_files_continue_identically_and_are_told_apart() -> None:
    """Through JSON. Catches any part of the state that is not saved; read_costs tells surface from table."""
    surface = profiled(pad_widths=(1, 2, 4, 8, 16))
    again = read_costs(surface.to_json())
    assert isinstance(again, CostSurface)
    rng = random.Random(6)
    for _ in range(80):
        feedback = told(rng.randrange(1, 20), rng.lognormvariate(0.0, 0.3), drafted=rng.randrange(1, 6))
        surface.observe_round(feedback)
        again.observe_round(feedback)
    assert again.state_dict() == surface.state_dict()
    table = CostTable.from_profile([(0, 1.0), (2, 2.0)])
    assert read_costs(table.to_json()).state_dict() == table.state_dict()
    for text, message in (
        ("{", "not a JSON"),
        ("[]", "format is None"),
        (json.dumps({"format": "x"}), "format is 'x'"),
    ):
        with pytest.raises(ForerunError, match=message):
            read_costs(text)
    broken = {**surface.state_dict(), "more": 1}
    with pytest.raises(ForerunError, match="unknown keys"):
        CostSurface.from_state_dict(broken)
