"""Identical, near-tie or real difference: on a table whose gaps a test can write down."""

import pytest
import torch

from forerun.evaluation import GreedyAgreement, greedy_verdict
from forerun.evaluation.greedy_verdict import NEAR_TIE_LOGITS
from forerun.models import TableTarget

PROMPT = [3, 0]
TOLERANCE = NEAR_TIE_LOGITS[torch.float64]
AFTER = {
    (3, 0): [5.0, 5.0 - TOLERANCE / 2, 5.0 - 3 * TOLERANCE, 0.0],
    (3, 0, 0): [1.0, 4.0, 2.5, 4.0],
    (3, 0, 1): [0.0, 0.0, 9.0, 0.0],
}
TARGET = TableTarget(lambda prefix: torch.tensor(AFTER.get(prefix, [0.0] * 4), dtype=torch.float64), vocab_size=4)


def test_equal_answers_are_identical() -> None:
    verdict = greedy_verdict(TARGET, PROMPT, [0, 1, 2], [0, 1, 2])
    assert verdict.agreement is GreedyAgreement.IDENTICAL and verdict.difference is None and verdict.passed
    assert verdict.describe() == "identical, 3 tokens"


def test_a_tie_is_settled_by_both_tokens_and_the_largest_logit() -> None:
    """Catches a gap between the two tokens alone: 1 and 3 tie with each other after (3, 0, 0), 0 and 2 nowhere do."""
    tie = greedy_verdict(TARGET, PROMPT, [0, 3, 3], [1, 2])  # what follows a near-tie is not looked at
    assert tie.agreement is GreedyAgreement.NEAR_TIE and tie.passed and tie.num_tokens == 2
    assert tie.difference is not None
    assert (tie.difference.position, tie.difference.plain_token, tie.difference.drafted_token) == (0, 0, 1)
    assert tie.difference.gap == pytest.approx(TOLERANCE / 2) == tie.difference.below_largest
    assert greedy_verdict(TARGET, PROMPT, [1], [0]).passed, "the order of the answers does not matter"

    assert not greedy_verdict(TARGET, PROMPT, [0], [2]).passed
    low = TableTarget(lambda _: torch.tensor([9.0, 1.0, 1.0], dtype=torch.float64), vocab_size=3)
    both_wrong = greedy_verdict(low, [0], [1], [2])
    assert both_wrong.agreement is GreedyAgreement.DIFFERENT and both_wrong.difference is not None
    assert (both_wrong.difference.gap, both_wrong.difference.below_largest) == (0.0, 8.0)


def test_the_gap_is_that_of_the_first_difference() -> None:
    """Catches a prefix that is one token too long or too short, and one that takes the wrong answer's tokens."""
    verdict = greedy_verdict(TARGET, PROMPT, [0, 1, 0], [0, 2, 0])
    assert verdict.agreement is GreedyAgreement.DIFFERENT and not verdict.passed
    assert verdict.difference is not None and verdict.difference.position == 1
    assert (verdict.difference.gap, verdict.difference.below_largest) == (1.5, 1.5)
    assert greedy_verdict(TARGET, PROMPT, [0, 1], [0, 3]).agreement is GreedyAgreement.NEAR_TIE
    assert verdict.describe(lambda token: "abcd"[token]) == (
        "real difference: token 2: 'b' plain, 'c' with drafts; their logits differ by 1.5, the lower one lies "
        f"1.5 below the largest (a tie is up to {TOLERANCE:g})"
    )


@pytest.mark.parametrize(
    ("plain", "drafted", "line"),
    [
        ([0, 1], [0], "real difference: token 2: '1' plain, the end with drafts"),
        ([0], [0, 1], "real difference: token 2: the end plain, '1' with drafts"),
    ],
)
def test_another_length_is_a_real_difference(plain: list[int], drafted: list[int], line: str) -> None:
    """Catches a comparison that stops at the shorter answer: a stop that was missed would look identical."""
    verdict = greedy_verdict(TARGET, PROMPT, plain, drafted)
    assert verdict.agreement is GreedyAgreement.DIFFERENT and verdict.num_tokens == 1
    assert verdict.describe() == line
