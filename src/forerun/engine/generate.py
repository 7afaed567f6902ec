"""The front door: check what the caller gave, then hand back a lazy answer."""

from __future__ import annotations

from collections.abc import Sequence

from forerun.distributions import SamplingParams, Streams
from forerun.drafters import Drafter
from forerun.engine.detokenizer import Detokenizer
from forerun.engine.generation import Generation, Request
from forerun.engine.stops import StopWatch
from forerun.errors import ForerunError
from forerun.horizons import AMTP, FixedHorizon, HorizonPolicy
from forerun.models import Target, TransformersTarget
from forerun.verification import Rule, TokenLevel


def generate(
    target: Target,
    prompt: str | Sequence[int],
    *,
    drafter: Drafter | None = None,
    horizon: int | HorizonPolicy | None = None,
    sampling: SamplingParams | None = None,
    max_new_tokens: int = 256,
    stop: Sequence[str] = (),
    ignore_stop_ids: bool = False,
    raw: bool = False,
    seed: int = 0,
    request: int = 0,
    rule: Rule | None = None,
) -> Generation:
    """Decode with or without a drafter; the output law is the target's either way.

    Nothing runs until the result is iterated (one round record at a time) or asked for its ``text``, ``token_ids`` or
    ``totals``.

    Args:
        target: the model whose law the answer follows.
        prompt: a user message (rendered with the target's chat template unless ``raw``), or token ids.
        drafter: proposes tokens; ``None`` is plain decoding.
        horizon: tokens to draft each round: a number, a policy (which goes on learning), or ``None`` for a fresh AMTP
            with a drafter and 0 without.
        sampling: processing of the logits; ``None`` is temperature 1.
        max_new_tokens: cap on the answer; the end of the target's context is another.
        stop: texts that end the answer; the answer's text ends before them.
        ignore_stop_ids: go on past the target's stop ids (for measurements of equal length).
        raw: take a text prompt as it is, without the chat template.
        seed: of every random draw.
        request: number of the request under this seed; each has random streams of its own.
        rule: acceptance rule; ``None`` is token-level speculative sampling.

    Raises:
        ForerunError: empty prompt, prompt longer than the context, ids outside the vocabulary (in ``sampling`` too),
            stop strings without a tokenizer, a horizon above the drafter's maximum, or a horizon without a drafter.
    """
    prompt_ids = _prompt_ids(target, prompt, raw)
    if max_new_tokens < 1:
        raise ForerunError(f"max_new_tokens is {max_new_tokens}; ask for at least one token")
    if isinstance(stop, str):
        raise ForerunError(f"stop is a list of texts: give [{stop!r}], or each of its letters would be a stop")
    if any(not text for text in stop):
        raise ForerunError("an empty stop string would end every answer at once; leave it out")
    sampling = SamplingParams() if sampling is None else sampling
    sampling.check_vocabulary(target.vocab_size)
    policy = _policy(horizon, drafter)
    detokenizer = (
        Detokenizer(target.tokenizer.decode)
        if isinstance(target, TransformersTarget) and target.has_tokenizer
        else None
    )
    if stop and detokenizer is None:
        raise ForerunError(f"stop strings need text, and {target.name} has no tokenizer; use its stop ids")
    room = target.max_positions - len(prompt_ids)
    watch = StopWatch(
        stop_ids=frozenset() if ignore_stop_ids else frozenset(target.stop_ids),
        stop_strings=tuple(stop),
        max_new_tokens=min(max_new_tokens, room),  # the end of the context ends an answer like the cap does
        detokenizer=detokenizer,
    )
    return Generation(
        Request(
            target=target,
            drafter=drafter,
            policy=policy,
            rule=TokenLevel() if rule is None else rule,
            prompt_ids=prompt_ids,
            sampling=sampling,
            max_new_tokens=min(max_new_tokens, room),
            streams=Streams(seed, request=request),
        ),
        watch,
    )


def _prompt_ids(target: Target, prompt: str | Sequence[int], raw: bool) -> tuple[int, ...]:
    if isinstance(prompt, str):
        if not prompt.strip():
            raise ForerunError("the prompt is empty; give some text")
        if not isinstance(target, TransformersTarget):
            raise ForerunError(f"{target.name} has no tokenizer; give token ids instead of text")
        tokenizer = target.tokenizer
        ids = tokenizer.encode(prompt) if raw else tokenizer.chat([{"role": "user", "content": prompt}])
    else:
        ids = list(prompt)
    if not ids:
        raise ForerunError("the prompt is empty; give at least one token")
    outside = [token_id for token_id in ids if not 0 <= token_id < target.vocab_size]
    if outside:
        raise ForerunError(f"prompt token {outside[0]} lies outside the vocabulary of {target.vocab_size}")
    if len(ids) >= target.max_positions:
        raise ForerunError(
            f"the prompt has {len(ids)} tokens and {target.name} a context of {target.max_positions}; shorten it"
        )
    return tuple(ids)


def _policy(horizon: int | HorizonPolicy | None, drafter: Drafter | None) -> HorizonPolicy:
    if horizon is None:
        return FixedHorizon(0) if drafter is None else AMTP()
    if isinstance(horizon, HorizonPolicy):
        return horizon
    if horizon > 0 and drafter is None:
        raise ForerunError(f"horizon {horizon} needs a drafter; give one, or horizon 0")
    if drafter is not None and horizon > drafter.max_horizon:
        raise ForerunError(f"horizon {horizon} is above the {drafter.max_horizon} tokens that {drafter.name} can draft")
    return FixedHorizon(horizon)
