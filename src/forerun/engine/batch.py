"""Sessions that share the target's passes: rows of one batch, joining and leaving between rounds."""

from __future__ import annotations

import time
from collections import deque
from typing import final

from forerun.engine.plan import Plan
from forerun.engine.record import Prefill, RoundRecord
from forerun.engine.request import Request
from forerun.engine.session import Session
from forerun.horizons import Seat
from forerun.models import Target, TargetStep


@final
class Batch:
    """Decodes the submitted sessions, a limited number of them at a time.

    Args:
        target: of all sessions.
        captured_layers: read by the drafter of all sessions.
        max_rows: sessions decoded together, at least 1; where one ends, the next joins at the following round.
    """

    def __init__(self, target: Target, captured_layers: tuple[int, ...], *, max_rows: int) -> None:
        self._target = target
        self._captured_layers = captured_layers
        self._max_rows = max_rows
        self._rows = target.new_batch()
        self._waiting: deque[Session] = deque()
        self._active: list[Session] = []
        self.events: list[tuple[Session, Prefill | RoundRecord]] = []
        """Everything that happened, in order."""

    def submit(self, request: Request) -> Session:
        """Queue a request. Sequences of one prompt should follow each other: then it is read once for all of them."""
        session = Session(request)
        self._waiting.append(session)
        return session

    @property
    def busy(self) -> bool:
        """Whether any session has not ended."""
        return any(session.finish is None for session in (*self._active, *self._waiting))

    def admit(self) -> None:
        """Let waiting sessions join while there is room: read their prompts and emit their first tokens."""
        self._release()
        first: tuple[Session, TargetStep] | None = None
        while self._waiting and len(self._active) < self._max_rows:
            session = self._waiting.popleft()
            if session.finish is not None:  # cancelled while it waited
                continue
            started = time.perf_counter()
            if first is not None and first[0].request.prompt_ids == session.request.prompt_ids:
                cache, step = self._rows.add(copy_of=first[0].cache), first[1]
            else:
                cache = self._rows.add()
                block = session.prompt_block(cache)
                wanted = len(block.token_ids) - len(session.request.prompt_ids) + 1  # riders, and the token before
                step = self._target.forward_batch([block], captured=self._captured_layers, num_logits=wanted)[0]
                first = session, step
            prefill = session.start(cache, step, time.perf_counter() - started)
            self._active.append(session)
            self.events.append((session, prefill))

    def run_round(self) -> None:
        """One round of every active session, each with its own horizon."""
        self.admit()
        self._release()
        sessions = list(self._active)
        if not sessions:
            return
        plans = self._plans(sessions)
        clock = self._target.clock
        began = clock.mark()
        steps = self._target.forward_batch([plan.block for plan in plans], captured=self._captured_layers)
        ended = clock.mark()
        clock.wait()  # the only time in a round, unless something looks at the drafts while they are drawn
        seconds = clock.seconds(began, ended)
        width = sum(len(plan.block.token_ids) for plan in plans)
        for session, plan, step in zip(sessions, plans, steps, strict=True):
            record = session.settle(plan, step, pass_seconds=seconds, pass_share=1 / len(sessions), pass_width=width)
            self.events.append((session, record))

    def _plans(self, sessions: list[Session]) -> list[Plan]:
        """Horizons for all sessions, then their drafts."""
        for session in sessions:
            session.foresee()
        started = time.perf_counter()
        told = [session.context(batch_size=len(sessions)) for session in sessions]
        seats = [session.request.policy for session in sessions]
        joint = seats[0].joint if isinstance(seats[0], Seat) else None
        together = [seat for seat in seats if isinstance(seat, Seat) and seat.joint is joint]
        if joint is not None and len(together) == len(seats):
            choices = joint.propose(together, [context for context, _ in told], uniforms=[coin for _, coin in told])
        else:
            choices = [seat.propose(context, uniform=coin) for seat, (context, coin) in zip(seats, told, strict=True)]
        seconds = (time.perf_counter() - started) / len(sessions)
        return [
            session.draft(context, choice, controller_seconds=seconds)
            for session, (context, _), choice in zip(sessions, told, choices, strict=True)
        ]

    def _release(self) -> None:
        """Let go of sessions that have ended; their rows are free for others."""
        for session in [session for session in self._active if session.finish is not None]:
            self._rows.remove(session.cache)
            self._active.remove(session)
