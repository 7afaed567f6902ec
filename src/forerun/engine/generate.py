"""The front door: check what the caller gave, then hand back lazy answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from jaxtyping import Int
from torch import Tensor

from forerun.distributions import SamplingParams, Streams
from forerun.drafters import Drafter, TreeDrafter
from forerun.engine.batch import Batch
from forerun.engine.batch_generation import BatchGeneration
from forerun.engine.generation import Generation
from forerun.engine.padding import unpadded
from forerun.engine.request import Request
from forerun.errors import ForerunError
from forerun.horizons import AMTP, FixedHorizon, HorizonPolicy, JointPolicy, Signal
from forerun.models import Target, TransformersTarget
from forerun.verification import Greedy, Rule, TokenLevel, TreeRule, TreeTokenLevel


def generate(
    target: Target,
    prompt: str | Sequence[int],
    *,
    drafter: Drafter | TreeDrafter | None = None,
    horizon: int | HorizonPolicy | None = None,
    sampling: SamplingParams | None = None,
    max_new_tokens: int = 256,
    stop: Sequence[str] = (),
    ignore_stop_ids: bool = False,
    raw: bool = False,
    logprobs: int | None = None,
    seed: int = 0,
    request: int = 0,
    rule: Rule | TreeRule | None = None,
) -> Generation:
    """Decode with or without a drafter; the output law is the target's either way.

    Nothing runs until the result is iterated (one round record at a time) or asked for its ``text``, ``token_ids`` or
    ``totals``.

    Args:
        target: the model whose law the answer follows.
        prompt: a user message (rendered with the target's chat template unless ``raw``), or token ids.
        drafter: proposes tokens; ``None`` is plain decoding.
        horizon: tokens to draft each round (the depth of a tree): a number, a policy (which goes on learning), or
            ``None`` for a fresh AMTP with a drafter and 0 without.
        sampling: temperature, truncation, penalties; ``None`` is temperature 1.
        max_new_tokens: cap on the answer; the end of the target's context is another.
        stop: texts that end the answer; the answer's text ends before them.
        ignore_stop_ids: go on past the target's stop ids (for measurements of equal length).
        raw: take a text prompt as it is, without the chat template.
        logprobs: report the log-probability of every emitted token, and this many of the likeliest ones beside it.
        seed: of every random draw.
        request: number of the request under this seed; each has random streams of its own.
        rule: acceptance rule; ``None`` is token-level speculative sampling, for trees its tree form.

    Raises:
        ForerunError: empty prompt, prompt longer than the context, ids outside the vocabulary (in ``sampling`` too),
            stop strings without a tokenizer, a horizon above the drafter's maximum, a horizon without a drafter, or a
            rule that does not fit the drafter or the temperature.
    """
    settings = _Settings(
        target=target,
        drafter=drafter,
        rule=_rule(rule, drafter, sampling),
        sampling=SamplingParams() if sampling is None else sampling,
        max_new_tokens=max_new_tokens,
        stop=stop,
        ignore_stop_ids=ignore_stop_ids,
        logprobs=logprobs,
    )
    prompt_ids = _prompt_ids(target, prompt, raw)
    checked = settings.request(prompt_ids, _policy(horizon, drafter), number=request, streams=Streams(seed, request))
    batch = Batch(target, checked.captured_layers, max_rows=1)
    return Generation(batch.submit(checked), batch)


def generate_batch(
    target: Target,
    prompts: Sequence[str | Sequence[int]] | Int[Tensor, "rows width"],
    *,
    attention_mask: Int[Tensor, "rows width"] | None = None,
    num_return_sequences: int = 1,
    max_batch: int = 16,
    drafter: Drafter | TreeDrafter | None = None,
    horizon: int | HorizonPolicy | JointPolicy | None = None,
    sampling: SamplingParams | None = None,
    max_new_tokens: int = 256,
    stop: Sequence[str] = (),
    ignore_stop_ids: bool = False,
    raw: bool = False,
    logprobs: int | None = None,
    seed: int = 0,
    rule: Rule | TreeRule | None = None,
) -> BatchGeneration:
    """Decode many prompts together; every answer is the one that it would be alone.

    Answer ``i * num_return_sequences + j`` is the j-th for prompt i, drawn from random streams of (seed, i, j);
    sequence 0 of prompt i is what ``generate(..., request=i)`` gives. Rows have horizons of their own, accept as many
    tokens as they do, end when they end, and make room for the next prompt.

    Three limits of "the same alone": batched kernels may round differently in the last bit, and at temperatures above 0
    a policy that measures time chooses other horizons in other company, and a drafter that learns from finished answers
    (``SuffixLookup`` with ``past``) drafts other tokens. The law is the target's either way.

    Args:
        target: the model whose law the answers follow.
        prompts: messages or token ids of any lengths; or padded ids as a tensor.
        attention_mask: for padded ids: 1 for tokens, 0 for padding on the left or right, which then has no effect.
        num_return_sequences: answers for every prompt; a prompt is read once for all of them that join together.
        max_batch: answers decoded together; the others wait.
        horizon: as in ``generate``; a policy is cloned for every answer (a clone has learned nothing). A joint policy
            is shared: it decides for all answers of a pass together, and goes on learning.
        drafter: see ``generate``, as for all other arguments.
        sampling: see ``generate``.
        max_new_tokens: of every answer.
        stop: see ``generate``.
        ignore_stop_ids: see ``generate``.
        raw: see ``generate``.
        logprobs: see ``generate``.
        seed: see ``generate``.
        rule: see ``generate``.

    Raises:
        ForerunError: as ``generate``, naming the prompt; or no prompts, or a mask that does not fit.
    """
    for name, value in (("num_return_sequences", num_return_sequences), ("max_batch", max_batch)):
        if value < 1:
            raise ForerunError(f"{name} is {value}; give 1 or more")
    if isinstance(prompts, Tensor):
        prompts = unpadded(prompts, attention_mask)
    elif attention_mask is not None:
        raise ForerunError("attention_mask belongs to padded ids in a tensor; lists of ids need none")
    if isinstance(prompts, str) or not prompts:
        raise ForerunError("prompts are a list with at least one text or list of token ids")
    settings = _Settings(
        target=target,
        drafter=drafter,
        rule=_rule(rule, drafter, sampling),
        sampling=SamplingParams() if sampling is None else sampling,
        max_new_tokens=max_new_tokens,
        stop=stop,
        ignore_stop_ids=ignore_stop_ids,
        logprobs=logprobs,
    )
    new_policy = horizon.seat if isinstance(horizon, JointPolicy) else _policy(horizon, drafter).clone
    requests = []
    for number, prompt in enumerate(prompts):
        try:
            prompt_ids = _prompt_ids(target, prompt, raw)
        except ForerunError as error:
            raise ForerunError(f"prompt {number}: {error}") from error
        requests += [
            settings.request(prompt_ids, new_policy(), number=number, streams=Streams(seed, number, sample))
            for sample in range(num_return_sequences)
        ]
    return BatchGeneration(requests, max_batch)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    """What all requests of a call share."""

    target: Target
    drafter: Drafter | TreeDrafter | None
    rule: Rule | TreeRule
    sampling: SamplingParams
    max_new_tokens: int
    stop: Sequence[str]
    ignore_stop_ids: bool
    logprobs: int | None

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise ForerunError(f"max_new_tokens is {self.max_new_tokens}; ask for at least one token")
        if isinstance(self.stop, str):
            raise ForerunError(f"stop is a list of texts: give [{self.stop!r}], or each of its letters would be a stop")
        if any(not text for text in self.stop):
            raise ForerunError("an empty stop string would end every answer at once; leave it out")
        if self.stop and self._decode is None:
            raise ForerunError(f"stop strings need text, and {self.target.name} has no tokenizer; use its stop ids")
        self.sampling.check_vocabulary(self.target.vocab_size)
        if self.logprobs is not None and not 0 <= self.logprobs <= self.target.vocab_size:
            raise ForerunError(
                f"logprobs is {self.logprobs}; give how many of the {self.target.vocab_size} tokens to report, or None"
            )

    def request(self, prompt_ids: tuple[int, ...], policy: HorizonPolicy, *, number: int, streams: Streams) -> Request:
        """One request with these settings."""
        target = self.target
        return Request(
            number=number,
            target=target,
            drafter=self.drafter,
            policy=policy,
            rule=self.rule,
            prompt_ids=prompt_ids,
            sampling=self.sampling,
            max_new_tokens=min(self.max_new_tokens, target.max_positions - len(prompt_ids)),
            streams=streams,
            stop_ids=frozenset() if self.ignore_stop_ids else frozenset(target.stop_ids),
            stop_strings=tuple(self.stop),
            decode=self._decode,
            logprobs=self.logprobs,
        )

    @property
    def _decode(self) -> Callable[[list[int]], str] | None:
        target = self.target
        return target.tokenizer.decode if isinstance(target, TransformersTarget) and target.has_tokenizer else None


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


def _policy(horizon: int | HorizonPolicy | None, drafter: Drafter | TreeDrafter | None) -> HorizonPolicy:
    if horizon is None:
        return FixedHorizon(0) if drafter is None else AMTP()
    if isinstance(horizon, HorizonPolicy):
        _check_kind(horizon, drafter)
        return horizon
    if horizon > 0 and drafter is None:
        raise ForerunError(f"horizon {horizon} needs a drafter; give one, or horizon 0")
    if drafter is not None and horizon > drafter.max_horizon:
        raise ForerunError(f"horizon {horizon} is above the {drafter.max_horizon} tokens that {drafter.name} can draft")
    return FixedHorizon(horizon)


def _check_kind(policy: HorizonPolicy, drafter: Drafter | TreeDrafter | None) -> None:
    if isinstance(drafter, TreeDrafter) and policy.ends_drafts:
        raise ForerunError(
            f"{policy.name} ends chains while they are drawn and {drafter.name} drafts trees; take another policy"
        )
    if Signal.DRAFT_MARGINS in policy.wants and not (isinstance(drafter, Drafter) and drafter.foresees):
        name = "plain decoding" if drafter is None else drafter.name
        raise ForerunError(
            f"features F4 look at draft laws before drafting, which {name} does not have; take medusa, parallel-heads "
            "or dflash, or features F3"
        )
    if isinstance(drafter, Drafter) and policy.shapes_trees:
        raise ForerunError(
            f"{policy.name} chooses the shapes of trees and {drafter.name} drafts chains; take another policy"
        )


def _rule(
    rule: Rule | TreeRule | None, drafter: Drafter | TreeDrafter | None, sampling: SamplingParams | None
) -> Rule | TreeRule:
    if isinstance(rule, Greedy) and (sampling is None or not sampling.greedy):
        raise ForerunError("rule greedy is for temperature 0 only; set the temperature to 0 or take another rule")
    trees = isinstance(drafter, TreeDrafter)
    if rule is None:
        return TreeTokenLevel() if trees else TokenLevel()
    if drafter is not None and isinstance(rule, TreeRule) is not trees:
        drafts, tests = ("trees", "chains") if trees else ("chains", "trees")
        raise ForerunError(
            f"{drafter.name} drafts {drafts} and rule {rule.name} tests {tests}; choose a rule for {drafts}"
        )
    return rule
