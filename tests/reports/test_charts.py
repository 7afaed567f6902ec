"""Charts: marks stand where the numbers are."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.reports.charts import cost_chart, horizon_chart, ratio_chart, shortened, survival_chart
from forerun.reports.page import arm_kinds
from forerun.reports.schema import PairedRatio, TraceRound
from forerun.reports.svg import Scale, round_step
from tests.reports.sample import SLOWER, answer_trace, arm_run, cost_curve, demo_result


def centres(chart: str | None, kind: str) -> list[tuple[float, float]]:
    """Where a chart has round marks of a kind."""
    assert chart is not None
    found = re.findall(rf'<circle cx="([\d.]+)" cy="([\d.]+)" r="4.5" class="{kind}"/>', chart)
    return [(float(x), float(y)) for x, y in found]


@given(low=st.floats(-1e6, 1e6), span=st.floats(1e-6, 1e6), share=st.floats(0, 1), start=st.floats(0, 500))
def test_a_scale_is_straight_and_stays_inside(low: float, span: float, share: float, start: float) -> None:
    """Would catch a flipped axis and marks drawn outside the chart."""
    scale = Scale(low=low, high=low + span, start=start, end=start - 200)
    assert scale(low) == start
    assert scale(low + 2 * span) == pytest.approx(start - 200)
    assert scale(low - 1) == start
    assert scale(low + share * span) == pytest.approx(start - share * 200, abs=1e-2)


@given(low=st.floats(-1e3, 1e3), span=st.floats(1e-3, 1e4), count=st.integers(2, 9))
def test_ticks_are_few_round_and_inside(low: float, span: float, count: int) -> None:
    """Would catch crowded or missing grid lines, and ticks like 0.30000000000000004 that are not multiples."""
    ticks = Scale(low=low, high=low + span, start=0, end=1).ticks(count)
    assert len(ticks) <= count + 1
    step = round_step(span / count)
    assert f"{step:.0e}"[0] in "125"
    for tick in ticks:
        assert low - 1e-6 * span <= tick <= low + span + 1e-6 * span
        assert tick / step == pytest.approx(round(tick / step), abs=1e-6)


def test_slower_arms_stand_left_of_the_line_at_one() -> None:
    """Would catch a mirrored axis, on which a slow arm looks fast."""
    result = demo_result(runs=(arm_run("plain"), arm_run("fast"), arm_run("slow", ratio=SLOWER)), traces=())
    chart = ratio_chart(result, 0.0, arm_kinds(result))
    assert chart is not None
    reference = re.search(r'<line x1="([\d.]+)" [^>]*class="reference"', chart)
    assert reference is not None
    ((fast_x, _),) = centres(chart, "arm-0")
    ((slow_x, _),) = centres(chart, "arm-1")
    assert slow_x < float(reference[1]) < fast_x


def test_a_task_without_a_ratio_takes_no_line() -> None:
    """Would catch names of tasks drawn over each other."""
    runs = (arm_run("plain"), arm_run(), arm_run("plain", task="math"), arm_run(task="math", ratio=None))
    result = demo_result(runs=runs)
    chart = ratio_chart(result, 0.0, arm_kinds(result))
    assert chart is not None
    assert re.findall(r'class="label strong">(\w+)<', chart) == ["all"]


def test_survival_falls_where_acceptance_falls() -> None:
    """Would catch counts drawn for shares: 90 and 75 % stand high and lower; an undrafted position has no mark."""
    result = demo_result()
    marks = centres(survival_chart(result, 0.0, arm_kinds(result)), "arm-0")
    assert len(marks) == 2
    (first_x, first_y), (second_x, second_y) = marks
    assert first_x < second_x
    assert (second_y - first_y) / (192 - 12) == pytest.approx(0.15, abs=0.01)


def test_an_arm_that_gains_stands_above_the_break_even_line() -> None:
    """Would catch a cost curve in other units than tau: tau 2.5 at mean horizon 1.8, where 1.45 breaks even."""
    result = demo_result(cost_curve=cost_curve())
    chart = cost_chart(result, arm_kinds(result))
    ((arm_x, arm_y),) = centres(chart, "arm-0")
    line = centres(chart, "threshold")
    assert len(line) == 3
    assert line[0][0] < arm_x < line[1][0]
    assert arm_y < min(y for _, y in line)


def test_charts_without_data_are_left_out() -> None:
    result = demo_result(runs=(arm_run("plain"),), traces=(), cost_curve=None)
    kinds = arm_kinds(result)
    assert ratio_chart(result, 0.0, kinds) is None
    assert survival_chart(result, 0.0, kinds) is None
    assert cost_chart(result, kinds) is None
    assert horizon_chart(answer_trace(rounds=()), "arm-0") is None


def test_one_round_and_one_point_can_be_drawn() -> None:
    """Would catch a scale of zero width."""
    narrow = PairedRatio(estimate=1.0, low=1.0, high=1.0, num_pairs=2)
    result = demo_result(runs=(arm_run(ratio=narrow),))
    assert ratio_chart(result, 0.0, arm_kinds(result)) is not None
    rounds = (TraceRound(tokens=("a",), horizon=1, accepted=0),)
    assert horizon_chart(answer_trace(rounds=rounds), "arm-0") is not None


def test_long_names_are_cut_to_fit() -> None:
    assert shortened("fixed k=3") == "fixed k=3"
    assert shortened("a" * 21) == "a" * 19 + "…"
