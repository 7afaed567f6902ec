"""The three checks together: a good pair passes all, and each check goes red for a bug of its own."""

import json

import pytest

from forerun.drafters import Drafter, DraftModel
from forerun.errors import ForerunError
from forerun.evaluation import ExactnessConfig, ExactnessReport, check_exactness
from forerun.models import Target
from forerun.verification import BlockVerification, Rule, TypicalAcceptance
from tests.support.speed import without_shape_checks
from tests.support.targets import random_table
from tests.support.writers import chat_target
from tests.support.wrong import AcceptEverything, StuckDice, misread_wide_passes

VOCAB = 5
TARGET = random_table(31, vocab_size=VOCAB)
DRAFTER = DraftModel(random_table(32, vocab_size=VOCAB), TARGET, max_horizon=4)
PROMPTS = {"one": [1, 2], "two": [4], "three": [0, 3, 3]}
CONFIG = ExactnessConfig(horizons=(1, 3), max_new_tokens=12, num_samples=200, sampled_tokens=2, seed=8)


def report(
    target: Target,
    drafter: Drafter,
    rule: Rule | None = None,
    *,
    prompts: dict[str, list[int]] = PROMPTS,
    config: ExactnessConfig = CONFIG,
) -> ExactnessReport:
    """Also checks that progress is told as it was announced."""
    stages: list[list[int]] = []
    with without_shape_checks():
        found = check_exactness(
            target, drafter, prompts, config, rule=rule,
            on_stage=lambda _, steps: stages.append([steps, 0]),
            on_step=lambda: stages[-1].__setitem__(1, stages[-1][1] + 1),
        )  # fmt: skip
    assert len(stages) == 3 and all(announced == done for announced, done in stages), stages
    return found


def reds(found: ExactnessReport) -> tuple[bool, bool, bool]:
    """Which of the three checks failed."""
    return (
        not all(run.verdict.passed for run in found.greedy),
        not all(run.difference.passed for run in found.widths),
        not found.sampling.passed,
    )


@pytest.mark.parametrize("rule", [None, BlockVerification()], ids=["token-level", "block"])
def test_an_exact_pair_passes(rule: Rule | None) -> None:
    found = report(TARGET, DRAFTER, rule)
    assert found.passed and reds(found) == (False, False, False), found
    assert [(run.prompt, run.horizon) for run in found.greedy] == [(name, h) for name in PROMPTS for h in (1, 3)]
    assert [(run.prompt, run.difference.width) for run in found.widths] == [
        (name, w) for name in PROMPTS for w in (2, 4)
    ]
    assert all(run.verdict.num_tokens == 12 and run.drafted > 0 for run in found.greedy)
    assert found.sampling.horizons == (1, 3) and found.sampling.seed == 8


def test_the_result_is_plain_json() -> None:
    """Catches a result that says nothing of what failed, and values that JSON lacks."""
    found = report(TARGET, DRAFTER).as_dict()
    found = json.loads(json.dumps(found, allow_nan=False))
    assert found["passed"] is True
    assert found["greedy"][0]["agreement"] == "identical" and found["greedy"][0]["passed"] is True
    assert found["widths"][0]["total_variation"] < 1e-12 and found["sampling"]["p_value"] > 0.001


def test_a_rule_that_accepts_everything_is_a_real_difference() -> None:
    found = report(TARGET, DRAFTER, AcceptEverything())
    assert reds(found)[0] and not found.passed
    assert found.as_dict()["passed"] is False


def test_a_target_that_reads_wide_passes_wrongly_is_seen() -> None:
    """Catches a check that never compares full passes: greedy answers may survive a small disturbance."""
    target = chat_target(stop_ids=())
    drafter = DraftModel(chat_target(seed=1, stop_ids=()), target, max_horizon=4)
    few = ExactnessConfig(horizons=(1, 2), max_new_tokens=6, num_samples=12)
    assert not reds(report(target, drafter, prompts={"one": [7, 8]}, config=few))[1]
    misread_wide_passes(target, at=2)
    found = report(target, drafter, prompts={"one": [7, 8]}, config=few)
    assert reds(found)[1] and not found.passed
    assert {run.difference.width for run in found.widths if not run.difference.passed} == {3}


def test_a_drafter_that_draws_from_another_law_is_seen_in_samples_only() -> None:
    assert reds(report(TARGET, StuckDice(DRAFTER))) == (False, False, True)


def refused(drafter: Drafter, config: ExactnessConfig, complaint: str, rule: Rule | None = None) -> None:
    with pytest.raises(ForerunError, match=complaint):
        check_exactness(
            TARGET, drafter, PROMPTS, config, rule=rule,
            on_stage=lambda _, __: pytest.fail("work has begun"), on_step=lambda: None,
        )  # fmt: skip


def test_what_cannot_be_checked_is_refused_at_once() -> None:
    refused(DRAFTER, CONFIG, "rule .* is lossy", TypicalAcceptance())
    refused(DRAFTER, ExactnessConfig(horizons=(1, 5)), "horizon is 5; .* can draft 1 to 4 tokens")
    refused(DRAFTER, ExactnessConfig(horizons=(0,)), "horizon is 0")
    refused(DRAFTER, ExactnessConfig(max_new_tokens=5), "a pass of 5 tokens needs answers of 6")


def test_default_horizons_go_as_far_as_the_drafter() -> None:
    """Catches a check that asks a short drafter for seven tokens."""
    two = DraftModel(random_table(32, vocab_size=VOCAB), TARGET, max_horizon=2)
    with without_shape_checks():
        found = check_exactness(
            TARGET, two, {"one": [1]}, ExactnessConfig(max_new_tokens=6, num_samples=60),
            on_stage=lambda _, __: None, on_step=lambda: None,
        )  # fmt: skip
    assert {run.horizon for run in found.greedy} == {1}
