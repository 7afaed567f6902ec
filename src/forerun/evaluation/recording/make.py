"""Making a recording: one pass over prompts and temperatures, answer by answer."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import median
from typing import final

import torch

from forerun.distributions import SamplingParams
from forerun.drafters import Drafter
from forerun.engine import generate
from forerun.errors import ForerunError
from forerun.evaluation.demo import DemoPrompt
from forerun.evaluation.pilot import CyclingHorizon
from forerun.evaluation.recording.format import (
    RecordedAnswer,
    RecordedContext,
    RecordedDraft,
    RecordedPosition,
    UncachedPass,
)
from forerun.evaluation.recording.window import WindowPolicy, WindowRule
from forerun.horizons import DrawnToken, RoundFeedback
from forerun.models import Target, TransformersTarget
from forerun.verification import Agreement

UNCACHED_LENGTHS = (32, 64, 128, 192)
UNCACHED_REPEATS = 5


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingSettings:
    """What is recorded.

    Attributes:
        max_new_tokens: cap of every answer.
        temperatures: 0 is greedy.
        seed: of every draw.
        ignore_stop_ids: go on past stop ids, for answers of equal length.
    """

    max_new_tokens: int = 96
    temperatures: tuple[float, ...] = (0.0, 1.0)
    seed: int = 0
    ignore_stop_ids: bool = False


def record_answers(
    target: Target,
    drafter: Drafter,
    prompts: Sequence[DemoPrompt],
    settings: RecordingSettings,
    *,
    recorded: int = 0,
    on_answer: Callable[[RecordedAnswer], None],
) -> None:
    """Record every prompt at every temperature.

    At every position the drafter drafts its whole window and the target verifies it, by agreement; then one token is
    committed. This costs about as much as decoding the answers one token at a time in passes of the window's width.

    Args:
        target: the model.
        drafter: proposes; must be prefix-consistent, otherwise shorter drafts would not be beginnings of the window.
        prompts: in order.
        settings: what is recorded.
        recorded: answers that exist already and are passed over.
        on_answer: takes each answer as it is finished.

    Raises:
        ForerunError: the drafter is not prefix-consistent.
    """
    if not drafter.prefix_consistent:
        raise ForerunError(
            f"{drafter.name} drafts differently at each horizon: a recorded window says nothing of others"
        )
    for number, (prompt, temperature) in enumerate(product(prompts, settings.temperatures)):
        if number >= recorded:
            on_answer(record_answer(target, drafter, prompt, temperature, settings, number=number))


def record_answer(
    target: Target,
    drafter: Drafter,
    prompt: DemoPrompt | Sequence[int],
    temperature: float,
    settings: RecordingSettings,
    *,
    number: int,
) -> RecordedAnswer:
    """Record one answer.

    Args:
        target: the model.
        drafter: proposes.
        prompt: a user message, or token ids.
        temperature: 0 is greedy.
        settings: what is recorded.
        number: of the answer, and of the request whose random streams it draws from.
    """
    rule, policy = WindowRule(), WindowPolicy(drafter.max_horizon)
    answer = generate(
        target,
        prompt.text if isinstance(prompt, DemoPrompt) else prompt,
        drafter=drafter,
        horizon=policy,
        sampling=SamplingParams(temperature=temperature),
        max_new_tokens=settings.max_new_tokens,
        ignore_stop_ids=settings.ignore_stop_ids,
        seed=settings.seed,
        request=number,
        rule=rule,
    )
    positions = []
    for record in answer:
        told = policy.feedback[-1]
        positions.append(
            RecordedPosition(
                context=_context(told),
                accepted=rule.take(),
                accept_probabilities=told.accept_probabilities,
                overlaps=told.overlaps,
                censored=told.censored,
                drafts=tuple(map(_draft, told.drawn)),
                draft_seconds=record.seconds.draft,
                verify_seconds=record.seconds.verify,
            )
        )
    return RecordedAnswer(
        number=number,
        prompt=prompt.id if isinstance(prompt, DemoPrompt) else f"prompt {number}",
        task=prompt.task if isinstance(prompt, DemoPrompt) else "",
        temperature=temperature,
        prompt_tokens=answer.prefill.prompt_tokens,
        token_ids=tuple(answer.token_ids),
        finish=answer.finish.value,
        positions=tuple(positions),
    )


def _context(told: RoundFeedback) -> RecordedContext:
    context = told.context
    return RecordedContext(
        limit=context.limit,
        context_length=context.context_length,
        generated=context.generated,
        temperature=context.temperature,
        target_entropy=context.target_entropy,
        target_top_prob=context.target_top_prob,
        target_margin=context.target_margin,
        last_token_repeats=context.last_token_repeats,
        token_class=context.token_class,
        suffix_match=context.suffix_match,
        hidden=context.hidden,
        draft_margins=context.draft_margins,
        batch_size=context.batch_size,
    )


def _draft(token: DrawnToken) -> RecordedDraft:
    law = token.law
    return RecordedDraft(
        entropy=max(0.0, law.entropy),
        top_prob=law.top_prob,
        margin=law.margin,
        confidence=law.confidence,
        prob=token.prob,
    )


def measured_costs(
    target: TransformersTarget, drafter: Drafter, prompts: Sequence[DemoPrompt], settings: RecordingSettings
) -> tuple[tuple[float, ...], tuple[float, ...], tuple[UncachedPass, ...]]:
    """What rounds cost here: every horizon in turn with a cache, and passes over whole sequences without one.

    On a processor this is processor time, which other programs of a busy machine disturb least; elsewhere the clock's.

    Args:
        target: the model.
        drafter: its drafter.
        prompts: decoded for it.
        settings: of the recording that follows.

    Returns:
        Median seconds of a round by horizon, of them for drafting, and the passes.

    Raises:
        ForerunError: the answers were too short to see every horizon.
    """
    clock = time.process_time if target.device.type == "cpu" else time.perf_counter
    policy = CyclingHorizon(drafter.max_horizon)
    whole: defaultdict[int, list[float]] = defaultdict(list)
    drafting: defaultdict[int, list[float]] = defaultdict(list)
    for number, prompt in enumerate(prompts):
        answer = generate(
            target, prompt.text, drafter=drafter, horizon=policy, max_new_tokens=settings.max_new_tokens,
            seed=settings.seed, request=number, ignore_stop_ids=True, rule=Agreement(),
        )  # fmt: skip
        rounds = iter(answer)
        assert answer.prefill is not None
        while True:
            started = clock()
            record = next(rounds, None)
            seconds = clock() - started
            if record is None:
                break
            if record.depth == record.choice.horizon:
                whole[record.depth].append(seconds)
                drafting[record.depth].append(seconds * record.seconds.draft / record.seconds.total)
    horizons = range(drafter.max_horizon + 1)
    unseen = [horizon for horizon in horizons if not whole[horizon]]
    if unseen:
        raise ForerunError(f"no round of horizon {unseen[0]} was timed; give longer answers")
    return (
        tuple(median(whole[horizon]) for horizon in horizons),
        tuple(median(drafting[horizon]) for horizon in horizons),
        tuple(_uncached(target, length, clock) for length in UNCACHED_LENGTHS),
    )


@torch.inference_mode()
def _uncached(target: TransformersTarget, length: int, clock: Callable[[], float]) -> UncachedPass:
    token_ids = torch.arange(length) % target.vocab_size
    taken = []
    for _ in range(UNCACHED_REPEATS):
        started = clock()
        target.forward(token_ids, target.new_cache(), num_logits=1)
        taken.append(clock() - started)
    return UncachedPass(length=length, seconds=median(taken))
