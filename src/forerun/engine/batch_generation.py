"""Many answers in the making, decoded together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import final

from forerun.engine.batch import Batch
from forerun.engine.generation import Generation
from forerun.engine.metrics import RoundTotals
from forerun.engine.record import Prefill, RoundRecord
from forerun.engine.request import Request


@final
class BatchGeneration:
    """Answers that share the target's passes. Iterating runs round after round and yields every record as it comes.

    Each answer in ``answers`` can be iterated, streamed and cancelled by itself; that decodes the others along with it.

    Args:
        requests: at least one; all of one target and one drafter; sequences of one prompt stand side by side.
        max_batch: answers decoded together.
    """

    def __init__(self, requests: Sequence[Request], max_batch: int) -> None:
        self._batch = Batch(requests[0].target, requests[0].captured_layers, max_rows=max_batch)
        self._sessions = [self._batch.submit(request) for request in requests]
        self.answers = [Generation(session, self._batch) for session in self._sessions]

    def __iter__(self) -> Iterator[tuple[int, RoundRecord]]:
        """Pairs of (index of the answer, record), in the order in which rounds ran."""
        for index, event in self._events():
            if isinstance(event, RoundRecord):
                yield index, event

    def stream(self) -> Iterator[tuple[int, str]]:
        """Pairs of (index of the answer, text that became readable)."""
        for index, event in self._events():
            if event.text:
                yield index, event.text

    @property
    def texts(self) -> list[str]:
        """All answers as text."""
        return [answer.text for answer in self.answers]

    @property
    def token_ids(self) -> list[list[int]]:
        """All answers as ids."""
        return [answer.token_ids for answer in self.answers]

    @property
    def totals(self) -> RoundTotals:
        """Sums over all rounds of all answers; the seconds add up to the time that passed, prefill excluded."""
        return sum((answer.totals for answer in self.answers), RoundTotals())

    @property
    def exact(self) -> bool:
        """Whether every answer's law is the target's own."""
        return all(answer.exact for answer in self.answers)

    def _events(self) -> Iterator[tuple[int, Prefill | RoundRecord]]:
        index_of = {session: index for index, session in enumerate(self._sessions)}
        position = 0
        while True:
            while position == len(self._batch.events):
                if not self._batch.busy:
                    return
                self._batch.run_round()
            session, event = self._batch.events[position]
            yield index_of[session], event
            position += 1
