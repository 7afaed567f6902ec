"""N-gram look-up against its definition."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from forerun.distributions import PointLaw, Processing, SamplingParams
from forerun.drafters import PromptLookup
from forerun.errors import ForerunError

VOCAB = 4
TOKENS = st.lists(st.integers(0, VOCAB - 1), max_size=16)


def look_up(
    tokens: list[int], last: int, horizon: int, *, max_ngram: int = 3, sizes: tuple[int, ...] = ()
) -> list[int]:
    """What the drafter proposes; the tokens come in pieces of these sizes."""
    session = PromptLookup(VOCAB, max_ngram=max_ngram).new_session()
    ids = torch.tensor(tokens, dtype=torch.int64)
    taken = min(sum(sizes), len(tokens))
    for piece in (ids[:taken], ids[taken:]):
        if len(piece):
            session.extend(piece, torch.zeros(len(piece), 0, 1))
    processing = Processing(SamplingParams(), [*tokens, last])
    proposal = session.propose(last, horizon, processing, uniforms=torch.zeros(horizon, dtype=torch.float64))
    assert isinstance(proposal.law, PointLaw)
    assert session.length == len(tokens)
    return proposal.token_ids.tolist()


def by_definition(tokens: list[int], last: int, horizon: int, max_ngram: int) -> list[int]:
    """Longest suffix first; its latest occurrence that another processed token follows; what follows, up to the end."""
    everything = [*tokens, last]
    for size in range(min(max_ngram, len(everything)), 0, -1):
        suffix = everything[-size:]
        for end in range(len(tokens) - 1, size - 1, -1):
            if everything[end - size : end] == suffix:
                return everything[end : end + horizon]
    return []


@given(tokens=TOKENS, last=st.integers(0, VOCAB - 1), horizon=st.integers(1, 6), max_ngram=st.integers(1, 4))
def test_the_latest_occurrence_of_the_longest_suffix_is_copied(
    tokens: list[int], last: int, horizon: int, max_ngram: int
) -> None:
    """Catches the first occurrence in place of the latest, a shorter suffix in place of a longer one, and itself."""
    expected = by_definition(tokens, last, horizon, max_ngram)
    assert look_up(tokens, last, horizon, max_ngram=max_ngram) == expected


@given(tokens=TOKENS, last=st.integers(0, VOCAB - 1), cut=st.integers(0, 16))
def test_pieces_do_not_matter(tokens: list[int], last: int, cut: int) -> None:
    """Catches n-grams over the border of two rounds that are never seen."""
    assert look_up(tokens, last, 4, sizes=(cut,)) == look_up(tokens, last, 4)


@pytest.mark.parametrize(
    ("tokens", "last", "expected"),
    [
        ([1, 2, 3, 1, 2, 0, 1], 2, [0, 1, 2]),  # the later of two occurrences of 1, 2
        ([1, 2, 3, 0, 2], 1, [2, 3, 0, 2]),  # the suffix 2, 1 is new, the suffix 1 is not
        ([0, 1, 2], 3, []),  # nothing like it before
        ([0, 1], 1, []),  # the suffix never finds itself, nor the token that only itself follows
        ([2], 2, []),
        ([1, 1, 1], 1, [1, 1]),  # C13's prompt: what followed 1, 1 up to the end
        ([], 1, []),
    ],
)
def test_small_cases(tokens: list[int], last: int, expected: list[int]) -> None:
    """Values that can be checked by eye."""
    assert look_up(tokens, last, 4) == expected


def test_a_short_copy_gives_fewer_tokens_than_asked_for() -> None:
    """Catches padding with made-up tokens behind the end of what is known."""
    assert look_up([1, 2, 3], 1, 16) == [2, 3, 1]


@pytest.mark.parametrize(("max_ngram", "max_horizon"), [(0, 4), (3, 0), (-1, 4)])
def test_sizes_below_one_are_refused(max_ngram: int, max_horizon: int) -> None:
    """Catches a drafter that silently never drafts."""
    with pytest.raises(ForerunError, match=f"must be at least 1, got {max_ngram} and {max_horizon}"):
        PromptLookup(VOCAB, max_ngram=max_ngram, max_horizon=max_horizon)
