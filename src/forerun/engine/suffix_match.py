"""How long the end of a sequence is that stood in it before, followed token by token at constant cost."""

from __future__ import annotations

from typing import final

LONGEST = 64
START = 2  # tokens that must agree before a match is followed


@final
class SuffixMatch:
    """Follows one earlier place whose tokens agree with the newest ones.

    While the next token agrees the match grows. When one differs, the last place at which the newest two tokens stood
    is looked up and the match is counted backwards from there, up to 64 tokens. So the length is that of *one* match,
    the newest found, not always the longest.

    Example:
        >>> match = SuffixMatch()
        >>> for token in [5, 6, 7, 1, 5, 6, 7]:
        ...     match.push(token)
        >>> match.length
        3
    """

    def __init__(self) -> None:
        self.length = 0
        self._tokens: list[int] = []
        self._places: dict[tuple[int, int], int] = {}  # after which position two tokens stood last
        self._next = 0

    def push(self, token: int) -> None:
        """Take in the next token."""
        tokens = self._tokens
        tokens.append(token)
        if self.length and tokens[self._next] == token:
            self.length = min(self.length + 1, LONGEST)
            self._next += 1
        else:
            self.length = 0
        if len(tokens) < START:
            return
        pair = (tokens[-2], token)
        if not self.length and pair in self._places:
            self._next = self._places[pair]
            while (
                self.length < min(LONGEST, self._next)
                and tokens[self._next - 1 - self.length] == tokens[-1 - self.length]
            ):
                self.length += 1
        self._places[pair] = len(tokens)
