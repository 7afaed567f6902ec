"""One request: draft, verify, commit or roll back, round after round.

All state of a request lives in its ``Generation``; two requests share nothing but read-only models (and a horizon
policy, if the caller hands the same one to both so that it keeps learning).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from forerun.distributions import PointLaw, Processing, Purpose, SamplingParams, Streams
from forerun.drafters import Drafter
from forerun.engine.metrics import RoundTotals
from forerun.engine.record import Finish, Prefill, RoundRecord, RoundSeconds
from forerun.engine.stops import StopWatch
from forerun.horizons import Choice, HorizonPolicy, RoundContext, RoundFeedback
from forerun.models import Target
from forerun.verification import Outcome, Proposal, Rule


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Everything that decides an answer."""

    target: Target
    drafter: Drafter | None
    policy: HorizonPolicy
    rule: Rule
    prompt_ids: tuple[int, ...]
    sampling: SamplingParams
    max_new_tokens: int  # as far as the target's context reaches
    streams: Streams


@final
@dataclass(frozen=True, slots=True)
class _Signals:
    """What the law behind the last committed token looked like: features for the next round's horizon."""

    entropy: float
    top_prob: float
    margin: float


@final
class Generation:
    """An answer in the making. Iterating runs it round by round; the properties run it to the end.

    Args:
        request: what to generate, checked.
        watch: ends the answer and makes its text.

    Example:
        >>> for piece in generation.stream():  # doctest: +SKIP
        ...     print(piece, end="")
    """

    def __init__(self, request: Request, watch: StopWatch) -> None:
        self.request = request
        self._watch = watch
        self._committed: list[int] = list(request.prompt_ids)
        self._processing = Processing(request.sampling, request.prompt_ids, stop_ids=request.target.stop_ids)
        self._seen = set(request.prompt_ids)
        self._last_repeats = False
        self._records: list[RoundRecord] = []
        self._prefill: Prefill | None = None
        self._signals: _Signals | None = None
        self._cache = request.target.new_cache()
        self._session = request.drafter.new_session() if request.drafter is not None else None

    @property
    def prefill(self) -> Prefill:
        """The pass over the prompt; runs it if nothing has run yet."""
        if self._prefill is None:
            self._prefill = self._run_prefill()
        return self._prefill

    def __iter__(self) -> Iterator[RoundRecord]:
        """Records from the first round on; rounds that have run already are not run again."""
        index = 0
        while True:
            if index == len(self._records):
                if self._finished:
                    return
                self._records.append(self._run_round())
            yield self._records[index]
            index += 1

    def stream(self) -> Iterator[str]:
        """Text as it becomes readable; the pieces joined are ``text``."""
        yield self.prefill.text
        for record in self:
            yield record.text

    @property
    def records(self) -> list[RoundRecord]:
        """All rounds, to the end."""
        return list(self)

    @property
    def token_ids(self) -> list[int]:
        """The whole answer, stop id included."""
        records = self.records
        return [self.prefill.token_id, *(token_id for record in records for token_id in record.token_ids)]

    @property
    def text(self) -> str:
        """The whole answer as text; ``""`` for targets without a tokenizer."""
        records = self.records
        return self.prefill.text + "".join(record.text for record in records)

    @property
    def finish(self) -> Finish:
        """Why it ended."""
        records = self.records
        finish = records[-1].finish if records else self.prefill.finish
        assert finish is not None
        return finish

    @property
    def totals(self) -> RoundTotals:
        """Sums over all rounds, from which tau and the other metrics derive."""
        return RoundTotals.of(self.records)

    @property
    def exact(self) -> bool:
        """Whether the output law is the target's own."""
        return self.request.rule.exact

    @property
    def _finished(self) -> bool:
        last = self._records[-1].finish if self._records else self.prefill.finish
        return last is not None

    def _run_prefill(self) -> Prefill:
        request = self.request
        start = time.perf_counter()
        prompt = torch.tensor(request.prompt_ids)
        step = request.target.forward(prompt, self._cache, captured=self._captured, num_logits=1)
        law = self._processing.law(step.logits)
        token_id = int(law.sample(uniforms=request.streams.uniforms(Purpose.EMIT, len(prompt), 1)))
        if self._session is not None:
            self._session.extend(prompt, step.features)
        self._signals = _signals(step.logits[-1])
        pushed = self._watch.push(token_id)
        self._append(token_id)
        return Prefill(
            prompt_tokens=len(prompt),
            token_id=token_id,
            text=pushed.text,
            finish=pushed.finish,
            seconds=time.perf_counter() - start,
        )

    def _run_round(self) -> RoundRecord:
        request = self.request
        position = len(self._committed)  # of the token that this round decides first
        started = time.perf_counter()
        context = self._context()
        coin = float(request.streams.uniforms(Purpose.EXPLORE, position, 1))
        choice = request.policy.propose(context, uniform=coin)
        chosen = time.perf_counter()
        assert 0 <= choice.horizon <= context.limit, f"{request.policy.name} went above the round's limit"
        proposal = self._draft(choice.horizon, position)
        drafted = time.perf_counter()
        drafts = proposal.token_ids.tolist()
        inputs = torch.cat([torch.tensor(self._committed[-1:]), proposal.token_ids])
        step = request.target.forward(inputs, self._cache, captured=self._captured)
        outcome = request.rule.verify(
            self._processing.law(step.logits, drafts),
            proposal,
            uniforms=request.streams.uniforms(Purpose.ACCEPT, position, proposal.horizon),
        )
        last = int(
            outcome.emission.sample(uniforms=request.streams.uniforms(Purpose.EMIT, position + outcome.accepted, 1))
        )
        verified = time.perf_counter()
        censored = self._watch.tokens_until_stop(drafts)
        kept = outcome.accepted + 1
        self._cache.rollback(position - 1 + kept)
        if self._session is not None:
            self._session.extend(inputs[:kept], step.features[:kept])
        self._signals = _signals(step.logits[outcome.accepted])
        emitted, text, finish = self._commit([*drafts[: outcome.accepted], last])
        committed = time.perf_counter()
        request.policy.observe(_feedback(choice, context, outcome, censored, committed - started))
        controller = (chosen - started) + (time.perf_counter() - committed)
        return RoundRecord(
            index=len(self._records),
            limit=context.limit,
            choice=choice,
            drafted=proposal.horizon,
            accepted=outcome.accepted,
            token_ids=tuple(emitted),
            accepted_emitted=min(len(emitted), outcome.accepted),
            text=text,
            finish=finish,
            seconds=RoundSeconds(
                controller=controller,
                draft=drafted - chosen,
                verify=verified - drafted,
                commit=committed - verified,
            ),
        )

    def _context(self) -> RoundContext:
        request = self.request
        length = len(self._committed)
        generated = length - len(request.prompt_ids)
        limit = request.max_new_tokens - generated - 1  # the correction or bonus token needs a place too
        if request.drafter is None:
            limit = 0
        else:
            limit = min(limit, request.drafter.max_horizon)
            if request.drafter.max_positions is not None:
                limit = min(limit, request.drafter.max_positions - length)
        known = self._signals
        return RoundContext(
            limit=max(limit, 0),
            context_length=length,
            generated=generated,
            temperature=0.0 if request.sampling.greedy else request.sampling.temperature,
            target_entropy=None if known is None else known.entropy,
            target_top_prob=None if known is None else known.top_prob,
            target_margin=None if known is None else known.margin,
            last_token_repeats=self._last_repeats,
        )

    def _draft(self, horizon: int, position: int) -> Proposal:
        request = self.request
        if horizon == 0 or self._session is None:
            return _no_drafts(request.target.vocab_size)
        uniforms = request.streams.uniforms(Purpose.DRAFT, position, horizon)
        return self._session.propose(self._committed[-1], horizon, self._processing, uniforms=uniforms)

    def _commit(self, token_ids: list[int]) -> tuple[list[int], str, Finish | None]:
        """Hand tokens over one by one, so that a stop inside a block ends the answer where plain decoding would."""
        emitted, text = [], ""
        for token_id in token_ids:
            pushed = self._watch.push(token_id)
            emitted.append(token_id)
            self._append(token_id)
            text += pushed.text
            if pushed.finish is not None:
                return emitted, text, pushed.finish
        return emitted, text, None

    def _append(self, token_id: int) -> None:
        self._last_repeats = token_id in self._seen
        self._seen.add(token_id)
        self._committed.append(token_id)
        self._processing.commit(token_id)

    @property
    def _captured(self) -> tuple[int, ...]:
        return () if self.request.drafter is None else self.request.drafter.captured_layers


def _no_drafts(vocab_size: int) -> Proposal:
    nothing = torch.empty(0, dtype=torch.int64)
    return Proposal(token_ids=nothing, law=PointLaw(nothing, vocab_size))


def _signals(logits: Float[Tensor, " vocab"]) -> _Signals:
    """Of the target's law at temperature 1, so that greedy decoding has them too."""
    log_probs = torch.log_softmax(logits.float(), dim=-1)
    probs = log_probs.exp()
    first, second = probs.topk(2).values.tolist()
    return _Signals(entropy=float(-torch.dot(probs, log_probs.clamp(min=-1e4))), top_prob=first, margin=first - second)


def _feedback(
    choice: Choice, context: RoundContext, outcome: Outcome, censored: int | None, seconds: float
) -> RoundFeedback:
    return RoundFeedback(
        choice=choice,
        context=context,
        accepted=outcome.accepted,
        accept_probabilities=tuple(outcome.accept_probabilities.tolist()),
        overlaps=tuple(outcome.overlaps.tolist()),
        seconds=seconds,
        censored=censored,
    )
