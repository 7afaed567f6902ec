"""What is remembered of earlier answers, and what is forgotten."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.drafters import PastOutputs
from forerun.errors import ForerunError


def remembered(past: PastOutputs) -> list[list[int]]:
    """Oldest first."""
    return [list(output) for segment in reversed(past.segments) for output in segment.outputs]


@given(sizes=st.lists(st.integers(0, 30), max_size=40), max_tokens=st.integers(16, 120))
def test_the_newest_outputs_are_kept_in_bounded_memory(sizes: list[int], max_tokens: int) -> None:
    """Catches memory above the bound, an order that is lost in a merge, and eviction of what is new.

    By definition: what is there is a run of the newest outputs, long ones cut to their ends; less than an eighth of the
    memory is free once something was forgotten.
    """
    past, added = PastOutputs(max_tokens=max_tokens, max_match=4), []
    for number, size in enumerate(sizes):
        output = [number] * (size // 2) + list(range(size - size // 2))
        past.add(output)
        if output:
            added.append(output[-(max_tokens // 8 - 1) :])
        found = remembered(past)
        assert found == added[len(added) - len(found) :]
        assert past.num_tokens == sum(len(output) + 1 for output in found) <= max_tokens
        if len(found) < len(added):
            assert past.num_tokens > max_tokens - max_tokens // 8


def test_segments_are_few_and_stay_as_they_were() -> None:
    """Catches a search over every answer, and a request whose memory changes while it runs."""
    past = PastOutputs(max_tokens=1000, max_match=4)
    seen = []
    for number in range(120):
        past.add([number % 7] * 9)
        seen.append((past.segments, [segment.num_tokens for segment in past.segments]))
        assert len(past.segments) <= 8 * 2 + 8
    for segments, sizes in seen:
        assert [segment.num_tokens for segment in segments] == sizes


@pytest.mark.parametrize(("max_tokens", "max_match"), [(15, 4), (100, 0)])
def test_numbers_that_leave_no_room_are_refused(max_tokens: int, max_match: int) -> None:
    """Catches a memory that silently keeps nothing."""
    with pytest.raises(ForerunError, match="give at least 16 tokens"):
        PastOutputs(max_tokens=max_tokens, max_match=max_match)
