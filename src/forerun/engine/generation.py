"""One answer in the making, as its caller sees it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

from forerun.distributions import TokenLogprob
from forerun.engine.batch import Batch
from forerun.engine.metrics import RoundTotals
from forerun.engine.record import Finish, Prefill, RoundRecord
from forerun.engine.session import Session
from forerun.errors import ForerunError
from forerun.verification import Truncation


@final
class Generation:
    """An answer in the making. Iterating runs it round by round; the properties run it to the end.

    Args:
        session: its state.
        batch: decodes the session, perhaps together with others.

    Example:
        >>> for piece in generation.stream():  # doctest: +SKIP
        ...     print(piece, end="")
    """

    def __init__(self, session: Session, batch: Batch) -> None:
        self.request = session.request
        self._session = session
        self._batch = batch

    @property
    def prefill(self) -> Prefill:
        """The pass over the prompt; runs it if nothing has run yet.

        Raises:
            ForerunError: the answer was cancelled before.
        """
        if not self._reach_first_token():
            raise ForerunError("the answer was cancelled before its prompt was read: there is no first token")
        assert self._session.prefill is not None
        return self._session.prefill

    def __iter__(self) -> Iterator[RoundRecord]:
        """Records from the first round on; rounds that have run already are not run again."""
        self._reach_first_token()
        records = self._session.records
        index = 0
        while True:
            while index == len(records):
                if self._session.finish is not None:
                    return
                self._batch.run_round()
            yield records[index]
            index += 1

    def stream(self) -> Iterator[str]:
        """Text as it becomes readable; the pieces joined are ``text``."""
        if self._reach_first_token():
            yield self.prefill.text
        for record in self:
            yield record.text

    def cancel(self) -> None:
        """End the answer after the rounds that have run; it may be iterated meanwhile. Ended answers stay as they are.

        Text that was held back, as a stop string might have begun with it, is not shown any more.
        """
        self._session.cancel()

    @property
    def records(self) -> list[RoundRecord]:
        """All rounds, to the end."""
        return list(self)

    @property
    def token_ids(self) -> list[int]:
        """The whole answer, stop id included."""
        first = [self.prefill.token_id] if self._reach_first_token() else []
        return [*first, *(token_id for record in self for token_id in record.token_ids)]

    @property
    def text(self) -> str:
        """The whole answer as text; ``""`` for targets without a tokenizer."""
        return "".join(self.stream())

    @property
    def logprobs(self) -> list[TokenLogprob] | None:
        """Of every token of the answer; ``None`` where they were not asked for."""
        if self.request.logprobs is None:
            return None
        first = self.prefill.logprobs if self._reach_first_token() else ()
        return [each for part in (first, *(record.logprobs for record in self)) for each in part or ()]

    @property
    def finish(self) -> Finish:
        """Why it ended."""
        for _ in self:
            pass
        assert self._session.finish is not None
        return self._session.finish

    @property
    def totals(self) -> RoundTotals:
        """Sums over all rounds, from which tau and the other metrics derive."""
        return RoundTotals.of(self)

    @property
    def exact(self) -> bool:
        """Whether the output law is the target's own."""
        rule = self.request.rule
        return rule.exact and (self.request.policy.exact or rule.truncation is Truncation.ANY_DRAFT)

    def _reach_first_token(self) -> bool:
        """Read the prompt if nothing has; no when the answer was cancelled before."""
        while self._session.prefill is None and self._session.finish is None:
            self._batch.admit()
            if self._session.prefill is None:  # it waits for a free row
                self._batch.run_round()
        return self._session.prefill is not None
