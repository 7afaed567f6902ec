"""One request while it is being decoded: all of its state, and what a round does to it.

A session never runs the target itself. It says what the target should read and takes in what came out, so that many
sessions can share one pass. Two sessions share nothing but read-only models (and a horizon policy, if the caller hands
the same one to both).
"""

from __future__ import annotations

import time
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from forerun.distributions import Purpose, TokenLogprob, UnusableLogits, token_logprobs
from forerun.drafters import (
    ForeseeingSession,
    RidingSession,
)
from forerun.engine.draft import Draft, Verdict
from forerun.engine.drafting import draft_for
from forerun.engine.plan import Plan
from forerun.engine.record import Finish, Prefill, RoundRecord, RoundSeconds
from forerun.engine.request import Request
from forerun.engine.signals import Signals
from forerun.engine.stop_rule import RuleStop
from forerun.errors import ForerunError
from forerun.horizons import Choice, RoundContext, RoundFeedback, Signal
from forerun.models import Block, TargetCache, TargetStep


@final
class Session:
    """State of one request.

    Args:
        request: what to generate.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self.records: list[RoundRecord] = []
        self.prefill: Prefill | None = None
        self.finish: Finish | None = None
        self._clock = request.target.clock
        self._cache: TargetCache | None = None
        self._proposer = None if request.drafter is None else request.drafter.new_session()
        self._processing = request.new_processing()
        self._watch = request.new_watch()
        self._committed: list[int] = list(request.prompt_ids)
        self._signals = Signals(request.target, request.policy.wants, request.prompt_ids)
        self._margins: tuple[float, ...] | None = None  # of the round's block, where it was foreseen
        self._foresight_seconds = 0.0

    @property
    def cache(self) -> TargetCache:
        """The target's state for this request, once the prompt has been read."""
        assert self._cache is not None, "the prompt has not been read yet"
        return self._cache

    def prompt_block(self, cache: TargetCache) -> Block:
        """What the target reads first: the prompt, and riders behind its last token."""
        return self._with_riders(Block(cache=cache, token_ids=torch.tensor(self.request.prompt_ids)), chain=1)[0]

    def start(self, cache: TargetCache, step: TargetStep, seconds: float) -> Prefill:
        """Take in the target's pass over the prompt, and emit the first token.

        Args:
            cache: holds the prompt, and belongs to this session from now on.
            step: features of the whole prompt; the logits of its last token, and those of the riders.
            seconds: that the pass took.
        """
        request, started = self.request, time.perf_counter()
        self._cache = cache
        position = len(self._committed)
        logits = step.logits[:1]
        try:
            law = self._processing.law(logits)
        except UnusableLogits as error:
            raise self._unusable(position) from error
        token_id = int(law.sample(uniforms=request.streams.uniforms(Purpose.EMIT, position, 1)))
        if self._proposer is not None:
            features = self._for_drafter(step.features[:position])
            self._proposer.extend(torch.tensor(request.prompt_ids), features)
        if isinstance(self._proposer, RidingSession):
            cache.rollback(position)
            self._proposer.arrive(step.logits[1:])
        self._signals.see(logits[0], step.features[position - 1])
        logprobs = self._logprobs(logits, [token_id])
        _, text, self.finish = self._commit([token_id])
        self.prefill = Prefill(
            prompt_tokens=position,
            token_id=token_id,
            text=text,
            finish=self.finish,
            seconds=seconds + time.perf_counter() - started,
            logprobs=logprobs,
        )
        self._check_states()
        self._tell_end()
        return self.prefill

    def foresee(self) -> None:
        """Open the round's block where the policy looks at its laws; that is drafting, paid for at every horizon."""
        self._margins, self._foresight_seconds = None, 0.0
        limit = self._limit()
        if Signal.DRAFT_MARGINS in self.request.policy.wants and limit > 0:
            assert isinstance(self._proposer, ForeseeingSession)
            started = time.perf_counter()
            self._margins = tuple(self._proposer.foresee(self._committed[-1], limit).tolist())
            self._foresight_seconds = time.perf_counter() - started

    def context(self, *, batch_size: int) -> tuple[RoundContext, float]:
        """What the horizon policy may know before drafting, and its coin.

        Args:
            batch_size: requests decoded together, this one included.
        """
        return self._context(batch_size), self.request.streams.uniform(Purpose.EXPLORE, len(self._committed))

    def draft(self, context: RoundContext, choice: Choice, *, controller_seconds: float) -> Plan:
        """Draft as the policy chose.

        Args:
            context: what the policy was told.
            choice: its answer.
            controller_seconds: that it took.
        """
        began = self._clock.mark()
        assert 0 <= choice.horizon <= context.limit, f"{self.request.policy.name} went above the round's limit"
        assert choice.branching is None or len(choice.branching) == choice.horizon, "a shape of another depth"
        stop = None if choice.stop is None else RuleStop(choice.stop)
        draft = draft_for(
            self.request,
            self._proposer,
            choice,
            self._processing,
            last_token=self._committed[-1],
            position=len(self._committed),
            stop=stop,
        )
        inputs = draft.inputs(self._committed[-1])
        block = Block(cache=self.cache, token_ids=inputs, parents=draft.parents)
        block, riders = self._with_riders(block, chain=len(inputs))
        return Plan(
            context=context,
            choice=choice,
            draft=draft,
            drawn=() if stop is None else tuple(stop.drawn[: draft.depth]),
            block=block,
            riders=riders,
            controller_seconds=controller_seconds,
            draft_marks=(began, self._clock.mark()),
        )

    def settle(
        self, plan: Plan, step: TargetStep, *, pass_seconds: float, pass_share: float, pass_width: int
    ) -> RoundRecord:
        """Verify, commit and roll back.

        Args:
            plan: of this round.
            step: the target's pass over the plan's block; the host has waited for it.
            pass_seconds: that the pass took, for all the sessions in it.
            pass_share: of those seconds that are written down here, so that sums over sessions are time that passed.
            pass_width: tokens in the pass, of all sessions.
        """
        request, draft = self.request, plan.draft
        started = time.perf_counter()
        position = len(self._committed)
        logits, *rider_logits = step.logits.split([1 + len(draft.token_ids), *plan.riders])
        try:
            verdict = draft.verify(logits, self._processing, streams=request.streams, position=position)
        except UnusableLogits as error:
            raise self._unusable(position + error.row) from error
        accepted = len(verdict.kept)
        uniforms = request.streams.uniforms(Purpose.EMIT, position + accepted, 1)
        last = int(verdict.emission.sample(uniforms=uniforms))
        verified = time.perf_counter()

        rows = [0, *verdict.kept]  # of the block: tokens that stay; row i decided the token after it
        token_ids = [*(verdict.drafted[row - 1] for row in verdict.kept), last]
        censored = self._censored(draft, verdict, token_ids)
        self._keep(plan.block, rows, position)
        if self._proposer is not None:
            read = torch.tensor([self._committed[-1], *token_ids[:-1]])
            self._proposer.extend(read, self._for_drafter(step.features[rows]))
        if isinstance(self._proposer, RidingSession):
            self._proposer.arrive(rider_logits[accepted])
        looking = time.perf_counter()
        self._signals.see(logits[rows[-1]], step.features[rows[-1]])
        looked = time.perf_counter() - looking
        emitted, text, self.finish = self._commit(token_ids)
        logprobs = self._logprobs(logits[rows[: len(emitted)]], emitted)
        committed = time.perf_counter()
        draft_seconds = self._foresight_seconds + self._clock.seconds(*plan.draft_marks)
        feedback = RoundFeedback(
            choice=plan.choice,
            context=plan.context,
            accepted=accepted,
            accept_probabilities=tuple(verdict.accept_probabilities.tolist()),
            overlaps=tuple(verdict.overlaps.tolist()),
            seconds=plan.controller_seconds + draft_seconds + pass_seconds + committed - started,
            censored=censored,
            draft_seconds=draft_seconds,
            verify_seconds=pass_seconds,
            verify_width=pass_width,
            drawn=plan.drawn,
            tree_depth=None if draft.parents is None else verdict.depth,
        )
        request.policy.observe(feedback)
        record = RoundRecord(
            index=len(self.records),
            limit=plan.context.limit,
            choice=plan.choice,
            drafted=len(verdict.drafted),
            depth=verdict.depth,
            riders=sum(plan.riders),
            beyond_drafter=request.beyond_drafter(position),
            cut_short=verdict.cut_short,
            accepted=accepted,
            token_ids=tuple(emitted),
            accepted_emitted=min(len(emitted), accepted),
            text=text,
            logprobs=logprobs,
            finish=self.finish,
            seconds=RoundSeconds(
                controller=plan.controller_seconds + looked + time.perf_counter() - committed,
                draft=draft_seconds,
                verify=pass_share * pass_seconds + verified - started,
                commit=committed - verified - looked,
            ),
        )
        self.records.append(record)
        self._check_states()
        self._tell_end()
        return record

    def cancel(self) -> None:
        """End the answer here; an answer that has ended already stays as it is."""
        if self.finish is None:
            self.finish = Finish.CANCELLED
            self._tell_end()

    def _tell_end(self) -> None:
        if self.finish is not None and self._proposer is not None:
            self._proposer.end(tuple(self._committed[len(self.request.prompt_ids) :]))

    def _context(self, batch_size: int) -> RoundContext:
        request, length = self.request, len(self._committed)
        return self._signals.context(
            limit=self._limit(),
            length=length,
            generated=length - len(request.prompt_ids),
            temperature=0.0 if request.sampling.greedy else request.sampling.temperature,
            batch_size=batch_size,
            draft_margins=self._margins,
        )

    def _limit(self) -> int:
        """Largest horizon of the round that comes next."""
        limit = self.request.limit(len(self._committed))
        return min(limit, self._proposer.ready) if isinstance(self._proposer, RidingSession) else limit

    def _for_drafter(self, features: Float[Tensor, "rows layers hidden"]) -> Float[Tensor, "rows read hidden"]:
        """Without the layer that was captured for the horizon policy alone."""
        drafter = self.request.drafter
        return features if drafter is None else features[:, : len(drafter.captured_layers)]

    def _with_riders(self, block: Block, *, chain: int) -> tuple[Block, tuple[int, ...]]:
        """The block, and behind its last ``chain`` tokens what the drafter has the target read; how many each."""
        if not isinstance(self._proposer, RidingSession):
            return block, ()
        after = len(self._committed) + 1  # tokens committed if none of the drafts stands
        riders = self._proposer.board([self.request.limit(after + accepted) for accepted in range(chain)])
        token_ids, parents = riders.behind(block.token_ids)
        return Block(cache=block.cache, token_ids=token_ids, parents=parents), riders.counts

    def _keep(self, block: Block, rows: list[int], position: int) -> None:
        """What the target keeps of the block: the last committed token and the accepted drafts."""
        if block.parents is None:
            self.cache.rollback(position - 1 + len(rows))
        else:
            self.cache.keep(position - 1, rows)

    def _censored(self, draft: Draft, verdict: Verdict, token_ids: list[int]) -> int | None:
        """How many drafted positions count for the policy: those up to the first token that ends the answer.

        A chain's cut looks at the drafted tokens whether or not they stand. A tree's depths are tried along the
        accepted path only, so there the path decides.
        """
        drafted = list(verdict.drafted) if draft.parents is None else token_ids[:-1]
        stop = self._watch.tokens_until_stop(drafted)
        return None if stop is None else min(stop, len(verdict.overlaps))

    def _commit(self, token_ids: list[int]) -> tuple[list[int], str, Finish | None]:
        """Hand tokens over one by one, so that a stop inside a block ends the answer where plain decoding would."""
        emitted, text = [], ""
        for token_id in token_ids:
            pushed = self._watch.push(token_id)
            emitted.append(token_id)
            self._signals.push(token_id)
            self._committed.append(token_id)
            self._processing.commit(token_id)
            text += pushed.text
            if pushed.finish is not None:
                return emitted, text, pushed.finish
        return emitted, text, None

    def _logprobs(self, logits: Float[Tensor, "rows vocab"], token_ids: list[int]) -> tuple[TokenLogprob, ...] | None:
        if self.request.logprobs is None:
            return None
        return tuple(token_logprobs(logits, token_ids, top=self.request.logprobs))

    def _unusable(self, position: int) -> ForerunError:
        return ForerunError(
            f"request {self.request.number}: {self.request.target.name} gave no usable law for position {position} "
            "(NaN, plus infinity, or every token excluded); check its weights, number type and your processors"
        )

    def _check_states(self) -> None:
        """Between rounds both models have read all but the last token; an answer cut by a stop is never read again."""
        if self.finish is None:
            expected = len(self._committed) - 1
            assert self.cache.length == expected, f"target has read {self.cache.length} tokens of {expected}"
            if self._proposer is not None:
                assert self._proposer.length == expected, f"drafter has read {self._proposer.length} of {expected}"
