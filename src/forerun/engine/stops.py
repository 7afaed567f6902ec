"""When an answer ends, asked for every single token, wherever block borders lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from forerun.engine.detokenizer import Detokenizer
from forerun.engine.record import Finish


@final
@dataclass(frozen=True, slots=True)
class Pushed:
    """What one token did: text that may be shown, and whether the answer ends with it."""

    text: str
    finish: Finish | None


@final
class StopWatch:
    """Follows an answer token by token.

    A stop string ends the answer with the token that completes it; the text shown ends before the string, and text
    that may still become one is held back. A stop id is part of the ids and, being special, of no text.

    Args:
        stop_ids: ids that end the answer.
        stop_strings: texts that end it.
        max_new_tokens: cap, at least 1.
        detokenizer: ``None`` for targets without text; stop strings then cannot match.
    """

    def __init__(
        self,
        *,
        stop_ids: frozenset[int],
        stop_strings: tuple[str, ...],
        max_new_tokens: int,
        detokenizer: Detokenizer | None,
    ) -> None:
        self._stop_ids = stop_ids
        self._stop_strings = stop_strings
        self._max_new_tokens = max_new_tokens
        self._detokenizer = detokenizer
        self._count = 0
        self._held = ""

    def push(self, token_id: int) -> Pushed:
        """Take in the next token of the answer."""
        self._count += 1
        finish = None
        if token_id in self._stop_ids:
            finish = Finish.STOP_ID
        elif self._count >= self._max_new_tokens:
            finish = Finish.LENGTH
        if self._detokenizer is None:
            return Pushed("", finish)
        self._held += self._detokenizer.push(token_id)
        if finish is not None:
            self._held += self._detokenizer.flush()
        start = min((place for stop in self._stop_strings if (place := self._held.find(stop)) >= 0), default=None)
        if start is not None:
            text, self._held = self._held[:start], ""
            return Pushed(text, Finish.STOP_STRING)
        keep = 0 if finish is not None else self._possible_start()
        split = len(self._held) - keep
        text, self._held = self._held[:split], self._held[split:]
        return Pushed(text, finish)

    def tokens_until_stop(self, token_ids: list[int]) -> int | None:
        """How many of these further tokens there are up to and including the first that would end the answer.

        ``None`` when none would. Nothing is taken in.
        """
        twin = self._copy()
        for index, token_id in enumerate(token_ids, start=1):
            if twin.push(token_id).finish is not None:
                return index
        return None

    def _possible_start(self) -> int:
        """Length of the longest tail that a stop string begins with."""
        return max(
            (
                size
                for stop in self._stop_strings
                for size in range(1, min(len(stop), len(self._held)) + 1)
                if self._held.endswith(stop[:size])
            ),
            default=0,
        )

    def _copy(self) -> StopWatch:
        # Without stop strings the text decides nothing, so it need not be made a second time.
        detokenizer = self._detokenizer.copy() if self._detokenizer is not None and self._stop_strings else None
        twin = StopWatch(
            stop_ids=self._stop_ids,
            stop_strings=self._stop_strings,
            max_new_tokens=self._max_new_tokens,
            detokenizer=detokenizer,
        )
        twin._count, twin._held = self._count, self._held
        return twin
