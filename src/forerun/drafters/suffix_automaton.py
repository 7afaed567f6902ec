"""All substrings of a sequence of tokens in linear space, grown token by token, with how often each one occurred.

A state stands for the substrings that end at the same places: the longest of them and some of its suffixes. Its link
leads to the state of the next shorter suffix. The file knows nothing of drafting.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import final

ROOT = 0
_NONE = -1


@final
@dataclass(frozen=True, slots=True)
class Match:
    """The longest known suffix of what was read, up to the automaton's ``max_match`` tokens.

    Attributes:
        state: where the suffix ends in the automaton.
        length: its tokens.
    """

    state: int
    length: int


NOTHING = Match(ROOT, 0)


@final
@dataclass(frozen=True, slots=True)
class Continuation:
    """A token that followed a substring.

    Attributes:
        token_id: the token.
        count: how often it followed.
        recent: number of tokens read when it followed last.
    """

    token_id: int
    count: int
    recent: int


@final
class SuffixAutomaton:
    """Online suffix automaton of one sequence.

    n tokens make at most 2 n states and 3 n transitions. Occurrences are counted for substrings of up to
    ``max_match + 1`` tokens (a match and a continuation); with that cap a token costs constant time, amortised.

    Args:
        max_match: longest match in tokens, at least 1.

    Example:
        >>> automaton = SuffixAutomaton(max_match=8)
        >>> for token in [7, 1, 2, 7, 1, 3, 7, 1, 2]:
        ...     automaton.push(token)
        >>> match = NOTHING
        >>> for token in [5, 7, 1]:
        ...     match = automaton.step(match, token)
        >>> match.length
        2
        >>> [(each.token_id, each.count) for each in automaton.continuations(match)]
        [(2, 2), (3, 1)]

    References:
        Blumer et al. 1985, "The smallest automaton recognizing the subwords of a text", section 3.
    """

    def __init__(self, *, max_match: int) -> None:
        self.max_match = max_match
        self._next: list[dict[int, int]] = [{}]
        self._link = array("i", [_NONE])
        self._longest = array("i", [0])
        self._count = array("i", [0])
        self._recent = array("i", [0])
        self._last = ROOT
        self._end = NOTHING  # the last max_match + 1 tokens; they occur, so all of them match
        self._num_tokens = 0

    @property
    def num_tokens(self) -> int:
        """Tokens pushed."""
        return self._num_tokens

    @property
    def num_states(self) -> int:
        """States, the root included."""
        return len(self._next)

    @property
    def num_transitions(self) -> int:
        """Edges between states."""
        return sum(map(len, self._next))

    @property
    def end(self) -> Match:
        """The newest tokens, all of them at most ``max_match + 1``: where ``step`` goes on from."""
        return self._end

    def push(self, token_id: int) -> None:
        """Take in the next token. A negative one parts two texts: no match holds it and nothing continues with it."""
        transitions, link, longest = self._next, self._link, self._longest
        self._num_tokens += 1
        new = self._new_state({}, longest[self._last] + 1, link=ROOT, count=0, recent=0)
        state = self._last
        while state != _NONE and token_id not in transitions[state]:
            transitions[state][token_id] = new
            state = link[state]
        if state != _NONE:
            known = transitions[state][token_id]
            link[new] = known if longest[known] == longest[state] + 1 else self._split(state, token_id, known)
        self._last = new
        self._end = self._stepped(self._end.state, self._end.length, token_id, self.max_match + 1)
        state = self._end.state
        while state != ROOT:  # every suffix up to max_match + 1 tokens occurred once more
            self._count[state] += 1
            self._recent[state] = self._num_tokens
            state = link[state]

    def step(self, match: Match, token_id: int) -> Match:
        """Read a further token: the longest suffix that occurs, up to ``max_match`` tokens.

        A match is valid until the next ``push``.
        """
        state = match.state
        if token_id in self._next[state]:
            return self._stepped(state, match.length, token_id, self.max_match)
        while state != ROOT:
            state = self._link[state]
            if token_id in self._next[state]:
                return self._stepped(state, self._longest[state], token_id, self.max_match)
        return NOTHING

    def followed(self, match: Match) -> Match:
        """The longest suffix of a match that a token followed anywhere; what stands at the end only is cut down."""
        while match.state != ROOT and not any(token_id >= 0 for token_id in self._next[match.state]):
            state = self._link[match.state]
            match = Match(state, self._longest[state])
        return match

    def continuations(self, match: Match) -> list[Continuation]:
        """What followed a match, in the order of first occurrence; nothing where nothing matches."""
        if match.state == ROOT:
            return []
        return [
            Continuation(token_id, self._count[state], self._recent[state])
            for token_id, state in self._next[match.state].items()
            if token_id >= 0
        ]

    def _stepped(self, state: int, length: int, token_id: int, cap: int) -> Match:
        """Follow a transition that is there, and forget what stands before the last ``cap`` tokens."""
        state = self._next[state][token_id]
        length = min(length + 1, cap)
        while self._longest[self._link[state]] >= length:
            state = self._link[state]
        return Match(state, length)

    def _split(self, state: int, token_id: int, known: int) -> int:
        """Part the shorter substrings of ``known``, which now end at one more place, from the longer ones."""
        clone = self._new_state(
            dict(self._next[known]),
            self._longest[state] + 1,
            link=self._link[known],
            count=self._count[known],
            recent=self._recent[known],
        )
        self._link[known] = clone
        while state != _NONE and self._next[state].get(token_id) == known:
            self._next[state][token_id] = clone
            state = self._link[state]
        return clone

    def _new_state(self, transitions: dict[int, int], longest: int, *, link: int, count: int, recent: int) -> int:
        self._next.append(transitions)
        self._longest.append(longest)
        self._link.append(link)
        self._count.append(count)
        self._recent.append(recent)
        return len(self._next) - 1
