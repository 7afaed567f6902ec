"""Text out of tokens as they come, without broken characters."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

_INCOMPLETE = "\ufffd"  # what decoding shows in place of a character whose bytes are not all there


@final
class Detokenizer:
    """Holds an incomplete tail back, so that the chunks joined equal the decoding of all ids.

    Args:
        decode: ids to text.
    """

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._context = 0  # ids from here are decoded again: a token's text may depend on the one before it
        self._shown = 0  # ids before here are already out

    def push(self, token_id: int) -> str:
        """Text that one more token makes certain; often the token's own, sometimes none, sometimes of several."""
        self._ids.append(token_id)
        text = self._decode(self._ids[self._context :])
        if text.endswith(_INCOMPLETE):
            return ""
        return self._show(text)

    def flush(self) -> str:
        """Whatever is still held back, at the end of the answer."""
        return self._show(self._decode(self._ids[self._context :]))

    def copy(self) -> Detokenizer:
        """An independent one in the same state."""
        twin = Detokenizer(self._decode)
        twin._ids, twin._context, twin._shown = list(self._ids), self._context, self._shown
        return twin

    def _show(self, text: str) -> str:
        known = self._decode(self._ids[self._context : self._shown])
        fresh = text[len(known) :]
        if fresh:  # a token without text (a special one) is no context: the next word would lose its space
            self._context = self._shown
        self._shown = len(self._ids)
        return fresh
