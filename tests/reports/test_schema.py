"""The stored result: what is derived from it, and what it refuses."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from forerun.errors import ForerunError
from forerun.reports import parse_result
from forerun.reports.schema import CostCurve, CostPoint, PairedRatio, TraceRound
from tests.reports.sample import FASTER, SLOWER, UNCLEAR, answer_trace, arm_run, cost_curve, demo_result


def test_metrics_follow_from_the_counters() -> None:
    """Would catch tau without the bonus token, a horizon that counts accepted tokens, or milliseconds for micro."""
    run = arm_run()
    assert run.tau == 2.5
    assert run.mean_horizon == 1.8
    assert run.tokens_per_second == pytest.approx(25.0)
    assert run.controller_microseconds_per_round == pytest.approx(100.0)
    assert run.survival_by_position == (0.9, 0.75, None)


def test_an_arm_without_rounds_has_no_metrics() -> None:
    """Would catch a division by zero, or zeros passed off as measurements."""
    seconds = {"controller": 0.0, "draft": 0.0, "verify": 0.0, "commit": 0.0}
    counters = {"rounds": 0, "emitted_tokens": 0, "drafted_tokens": 0, "accepted_tokens": 0, "seconds": seconds}
    run = type(arm_run()).model_validate({**arm_run().model_dump(), **counters})
    assert run.tau is None
    assert run.mean_horizon is None
    assert run.tokens_per_second is None
    assert run.controller_microseconds_per_round is None


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (1.01, 1.2, "faster"),
        (1.0, 1.2, "no clear difference"),
        (0.9, 1.1, "no clear difference"),
        (0.9, 1.0, "no clear difference"),
        (0.8, 0.99, "slower"),
    ],
)
def test_verdict_needs_an_interval_on_one_side_of_one(low: float, high: float, verdict: str) -> None:
    """Would catch a verdict taken from the estimate, or an end at exactly 1 that counts as a difference."""
    assert PairedRatio(estimate=(low + high) / 2, low=low, high=high, num_pairs=2).verdict == verdict


def test_break_even_tau_is_the_cost_in_plain_steps() -> None:
    """Would catch a cost curve that forgets the draft's time."""
    curve = cost_curve()
    assert [curve.break_even_tau(point) for point in curve.points] == pytest.approx([1.0, 1.5, 2.0])


def test_runs_are_grouped_by_task_in_the_order_of_arms() -> None:
    """Would catch rows in stored order, where an arm's tasks stand together and arms cannot be compared."""
    runs = (
        arm_run("plain", task="all"),
        arm_run("plain", task="math"),
        arm_run("AMTP", task="all"),
        arm_run("AMTP", task="math"),
        arm_run("AMTP", task="math", temperature=1.0),
    )
    grouped = demo_result(runs=runs).by_task_at(0.0)
    assert [(task, [run.arm for run in group]) for task, group in grouped] == [
        ("math", ["plain", "AMTP"]),
        ("all", ["plain", "AMTP"]),
    ]


def test_a_trace_splits_tokens_by_their_author() -> None:
    """Would catch the bonus token coloured as the draft's, or a miscounted answer."""
    trace = answer_trace()
    assert trace.rounds[0].draft_tokens == (" cat", " sat")
    assert trace.rounds[0].target_tokens == (" down",)
    assert trace.rounds[1].draft_tokens == ()
    assert trace.num_tokens == 5


def test_a_stop_within_accepted_tokens_leaves_no_target_token() -> None:
    """Would catch a slice that runs past a round cut short by a stop."""
    cut = TraceRound(tokens=("a", "b"), horizon=4, accepted=3)
    assert cut.draft_tokens == ("a", "b")
    assert cut.target_tokens == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"accepted_tokens": 181}, "181 tokens accepted, but only 180 drafted"),
        ({"rounds_without_drafts": 3, "rounds_beyond_drafter": 4}, "4 rounds beyond the drafter, 3 without drafts"),
        ({"accepted_by_position": (90, 60)}, "same length"),
        ({"accepted_by_position": (90, 81, 0)}, "position 2"),
        ({"rounds": -1}, "greater than or equal to 0"),
        ({"rounds": 100.0}, "integer"),
        ({"temperature": float("nan")}, "finite"),
        ({"surprise": 1}, "Extra inputs"),
        ({"task": "poetry"}, "'math', 'code', 'chat' or 'all'"),
    ],
)
def test_impossible_counters_are_refused(changes: dict[str, Any], message: str) -> None:
    """Would catch a report drawn from numbers that cannot have been measured."""
    with pytest.raises(ValidationError, match=message):
        type(arm_run()).model_validate({**arm_run().model_dump(), **changes})


def test_impossible_rounds_ratios_and_curves_are_refused() -> None:
    with pytest.raises(ValidationError, match="3 tokens accepted in a round that drafted 2"):
        TraceRound(tokens=(), horizon=2, accepted=3)
    with pytest.raises(ValidationError, match="3 tokens emitted in a round that accepted 1"):
        TraceRound(tokens=("a", "b", "c"), horizon=2, accepted=1)
    with pytest.raises(ValidationError, match="lies above"):
        PairedRatio(estimate=1.0, low=1.1, high=0.9, num_pairs=2)
    with pytest.raises(ValidationError, match="greater than or equal to 2"):
        PairedRatio(estimate=1.0, low=1.0, high=1.0, num_pairs=1)
    point = CostPoint(horizon=1, draft_seconds=0.0, verify_seconds=0.1)
    with pytest.raises(ValidationError, match="must rise"):
        CostCurve(plain_seconds=0.1, context_length=1, num_repeats=1, points=(point, point))
    with pytest.raises(ValidationError, match="appears twice"):
        demo_result(runs=(arm_run(), arm_run()))


def test_a_result_survives_json() -> None:
    """Would catch a field that strict reading refuses in the form in which it is written."""
    result = demo_result(
        runs=(arm_run("plain"), arm_run("a", ratio=FASTER), arm_run("b", ratio=SLOWER), arm_run("c", ratio=UNCLEAR)),
        cost_curve=cost_curve(),
        commit=None,
    )
    assert parse_result(result.model_dump_json()) == result


def test_an_unreadable_result_names_the_field() -> None:
    """Would catch a page of validation output where one line says what to mend."""
    fields = json.loads(demo_result().model_dump_json())
    fields["runs"][1]["rounds"] = "many"
    with pytest.raises(ForerunError, match=r"runs\.1\.rounds: Input should be a valid integer") as caught:
        parse_result(json.dumps(fields))
    assert "\n" not in str(caught.value)
    with pytest.raises(ForerunError, match="the file: Invalid JSON"):
        parse_result("{")
