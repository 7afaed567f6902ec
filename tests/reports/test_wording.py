"""What a result says in words: faster only where it is."""

import pytest

from forerun.reports import headline, sentences, warnings
from forerun.reports.schema import PairedRatio
from forerun.reports.wording import pairs, ratio_figure, temperature_name
from tests.reports.sample import FASTER, SLOWER, UNCLEAR, arm_run, demo_result


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ([FASTER, FASTER], "Speculative decoding is faster than plain decoding on this machine."),
        ([SLOWER], "Speculative decoding is slower than plain decoding on this machine."),
        ([UNCLEAR], "No clear difference between speculative and plain decoding on this machine."),
        (
            [FASTER, SLOWER, UNCLEAR, FASTER],
            "Against plain decoding on this machine: faster in 2, slower in 1 and no clear difference in 1 of 4 "
            "comparisons.",
        ),
        ([None], "Nothing was compared with plain decoding."),
    ],
)
def test_headline_says_what_the_intervals_allow(ratios: list[PairedRatio | None], expected: str) -> None:
    """Would catch a headline that names the best arm and is silent about the slow one."""
    runs = tuple(arm_run(f"arm {index}", ratio=ratio) for index, ratio in enumerate(ratios))
    assert headline(demo_result(runs=(arm_run("plain"), *runs))) == expected


def test_headline_counts_only_all_prompts_together() -> None:
    """Would catch tasks counted as comparisons of their own, which would weigh a lucky task double."""
    runs = (arm_run("plain"), arm_run(ratio=SLOWER), arm_run(task="math", ratio=FASTER))
    result = demo_result(runs=runs)
    assert headline(result).startswith("Speculative decoding is slower")
    assert sentences(result) == (
        "Temperature 0 (greedy): AMTP: slower, 0.80× (0.70–0.90) the speed of plain decoding.",
    )


def test_warnings_name_lossy_arms_quick_runs_and_missing_pairs() -> None:
    """Would catch a lossy or thin result that is quoted as an exact one."""
    assert warnings(demo_result()) == ()
    lossy = demo_result(runs=(arm_run("plain"), arm_run("typical", exact=False, ratio=None)), quick=True)
    first, second, third = warnings(lossy)
    assert "Not exact: typical" in first
    assert "Quick run" in second
    assert "no ratio" in third


def test_figures() -> None:
    assert ratio_figure(None) == "–"
    assert ratio_figure(FASTER) == "1.30× (1.20–1.40)"
    assert temperature_name(0.0) == "Temperature 0 (greedy)"
    assert temperature_name(0.7) == "Temperature 0.7"
    assert pairs(demo_result()) == "8 for each ratio"
    assert pairs(demo_result(runs=())) == "none"
