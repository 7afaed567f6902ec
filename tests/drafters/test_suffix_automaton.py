"""The suffix automaton against its definition: occurrences counted in the sequence itself."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.drafters.suffix_automaton import NOTHING, Match, SuffixAutomaton
from tests.support.speed import without_shape_checks

END = -1
SEQUENCES = st.integers(1, 4).flatmap(lambda vocab: st.lists(st.integers(0, vocab - 1), max_size=24))


def read(text: list[int], max_match: int) -> SuffixAutomaton:
    automaton = SuffixAutomaton(max_match=max_match)
    for token in text:
        automaton.push(token)
    return automaton


def ends_of(word: list[int], text: list[int]) -> list[int]:
    """Where a word ends in a text, by looking at every place."""
    return [end for end in range(len(word), len(text) + 1) if text[end - len(word) : end] == word]


def longest_suffix(words: list[int], text: list[int], max_match: int, *, followed: bool) -> list[int]:
    """Of what was read: the longest end, up to the cap, that occurs in the text; with a token after it if asked."""
    for size in range(min(max_match, len(words)), 0, -1):
        ends = ends_of(words[-size:], text)
        if any(end < len(text) and text[end] >= 0 for end in ends) if followed else ends:
            return words[-size:]
    return []


@given(
    text=SEQUENCES, second=SEQUENCES, query=st.lists(st.integers(0, 3), max_size=8), max_match=st.integers(1, 5),
    goes_on=st.booleans(),
)  # fmt: skip
def test_matches_and_counts_are_those_of_the_text(
    text: list[int], second: list[int], query: list[int], max_match: int, goes_on: bool
) -> None:
    """Catches states that are not split or lose counts, links to the wrong state, and a cap that is off by one.

    The query goes on where the text ends; or it is read from nothing, and the text is two texts.
    """
    text = text if goes_on else [*text, END, *second]
    automaton = read(text, max_match)
    match, words = (automaton.end, list(text)) if goes_on else (NOTHING, [])
    for token in query:
        match, words = automaton.step(match, token), [*words, token]
        assert match.length == len(longest_suffix(words, text, max_match, followed=False))
        followed = automaton.followed(match)
        word = longest_suffix(words, text, max_match, followed=True)
        assert followed.length == len(word)
        after: dict[int, list[int]] = {}
        for end in ends_of(word, text) if word else []:
            if end < len(text) and text[end] >= 0:
                after.setdefault(text[end], []).append(end + 1)
        found = {each.token_id: (each.count, each.recent) for each in automaton.continuations(followed)}
        assert found == {token_id: (len(ends), max(ends)) for token_id, ends in after.items()}


@given(text=SEQUENCES, max_match=st.integers(1, 5))
def test_states_are_at_most_two_for_each_token(text: list[int], max_match: int) -> None:
    """The bound of the automaton; also catches counts that depend on when the pushes came."""
    automaton = read(text, max_match)
    assert automaton.num_states <= max(len(text) + 1, 2 * len(text) - 1)
    assert automaton.num_tokens == len(text)
    assert automaton.end.length == min(max_match + 1, len(text))


@pytest.mark.parametrize(
    ("kind", "size"),
    [("one token", 5_000), ("cycle", 5_000), ("identical documents", 100_000), ("most states", 5_000)],
)
def test_long_texts_stay_linear(kind: str, size: int) -> None:
    """Catches a quadratic number of states or transitions where a text repeats itself; nothing is timed."""
    rng = random.Random(0)
    document = [rng.randrange(500) for _ in range(999)]
    text = {
        "one token": [0] * size,
        "cycle": [index % 7 for index in range(size)],
        "identical documents": [*document, END] * (size // 1000),
        "most states": [0, *[1] * (size - 1)],
    }[kind]
    with without_shape_checks():
        automaton = read(text, 32)
    assert automaton.num_tokens == size
    assert automaton.num_states <= 2 * size
    assert automaton.num_transitions <= 3 * size
    if kind == "one token":
        (only,) = automaton.continuations(Match(1, 1))
        assert (only.token_id, only.count, only.recent) == (0, size - 1, size)
