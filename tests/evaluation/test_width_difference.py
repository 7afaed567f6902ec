"""Laws of wide passes against laws of one-token passes."""

import pytest
import torch

from forerun.evaluation.width_difference import width_differences
from tests.support.targets import random_table
from tests.support.writers import chat_target
from tests.support.wrong import misread_wide_passes

PROMPT, ANSWER = [7, 8, 9], [4, 5, 6, 7, 8, 4, 5, 6]


def test_a_table_says_the_same_at_every_width() -> None:
    found = width_differences(random_table(0, vocab_size=10), PROMPT, ANSWER, [2, 3, 8])
    assert [each.width for each in found] == [2, 3, 8]
    assert all(each.total_variation < 1e-12 and each.passed and each.num_laws == len(ANSWER) - 1 for each in found)


def test_a_transformer_differs_by_rounding() -> None:
    found = width_differences(chat_target(dtype=torch.float32), PROMPT, ANSWER, [2, 5])
    assert all(0.0 < each.total_variation < 1e-6 and each.passed for each in found)


@pytest.mark.parametrize("width", [2, 4])
def test_the_worst_position_is_named(width: int) -> None:
    """Catches distances of the wrong rows: only the second token of each pass is misread, and each by more."""
    target = chat_target()
    misread_wide_passes(target, at=1)
    (found,) = width_differences(target, PROMPT, ANSWER, [width])
    seconds = range(2, len(ANSWER), width)  # the pass over answer tokens i and i + 1 decides tokens i + 1 and i + 2
    assert not found.passed and found.position in seconds
    one_token_passes = width_differences(target, PROMPT, ANSWER, [1])[0]
    assert one_token_passes.total_variation < 1e-12
