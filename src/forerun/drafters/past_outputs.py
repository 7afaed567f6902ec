"""Answers of earlier requests as suffix automata that later requests can read, in bounded memory.

Ownership: one thread adds (the one that runs the engine). What ``segments`` returned once never changes again, so a
request keeps reading what was there when it began, in any thread.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import final

from forerun.drafters.suffix_automaton import SuffixAutomaton
from forerun.errors import ForerunError

_END = -1  # stands after each output inside an automaton, so that no match reaches from one into the next
_SHARE = 8  # no segment but a single output holds more than this part of the memory


@final
class Segment:
    """Some outputs in one automaton; it never changes.

    Args:
        outputs: token ids of each.
        max_match: see ``SuffixAutomaton``.
    """

    def __init__(self, outputs: tuple[array[int], ...], *, max_match: int) -> None:
        self.outputs = outputs
        self.automaton = SuffixAutomaton(max_match=max_match)
        for output in outputs:
            for token_id in output:
                self.automaton.push(token_id)
            self.automaton.push(_END)

    @property
    def num_tokens(self) -> int:
        """Of all outputs; each has one more for its end."""
        return self.automaton.num_tokens


@final
class PastOutputs:
    """The newest outputs, up to a number of tokens.

    New outputs make small segments, and neighbours of about one size are merged, so there are only a few segments and
    each token is read again a logarithmic number of times. Eviction: when the memory is full, the oldest segment goes
    as a whole; segments hold at most an eighth of the memory, so at least seven eighths stay. Of an output longer than
    an eighth only the end is kept.

    Args:
        max_tokens: that are kept; a token takes some 300 to 450 bytes.
        max_match: longest match in tokens.

    Raises:
        ForerunError: a number is too small.
    """

    def __init__(self, *, max_tokens: int = 200_000, max_match: int = 32) -> None:
        if max_tokens < 2 * _SHARE or max_match < 1:
            raise ForerunError(
                f"max_tokens is {max_tokens} and max_match {max_match}; give at least {2 * _SHARE} tokens and a match "
                "of at least 1"
            )
        self.max_tokens = max_tokens
        self.max_match = max_match
        self._segments: tuple[Segment, ...] = ()

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Newest first."""
        return self._segments

    @property
    def num_tokens(self) -> int:
        """Tokens kept, one for the end of each output included."""
        return sum(segment.num_tokens for segment in self._segments)

    def add(self, token_ids: Sequence[int]) -> None:
        """Remember an output; an empty one changes nothing."""
        if not token_ids:
            return
        largest = self.max_tokens // _SHARE
        outputs: tuple[array[int], ...] = (array("i", token_ids[-(largest - 1) :]),)
        older = list(self._segments)
        size = len(outputs[0]) + 1
        while older and older[0].num_tokens <= 2 * size and older[0].num_tokens + size <= largest:
            size += older[0].num_tokens
            outputs = (*older.pop(0).outputs, *outputs)
        segments = [Segment(outputs, max_match=self.max_match), *older]
        while sum(segment.num_tokens for segment in segments) > self.max_tokens:
            segments.pop()
        self._segments = tuple(segments)
