"""Requests whose laws depend on everything said so far: the package's processing, and the same in plain Python."""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import final

import torch
from torch import Tensor
from transformers import LogitsProcessor

from forerun.distributions import Law, Processing, SamplingParams
from tests.exactness.enumerate import Tokens
from tests.exactness.tables import LogitTable, plain_row


@final
class RequestModel:
    """A table of logits, processed as one request's; a model and a block in the sense of ``enumerate``."""

    def __init__(self, logits: LogitTable, params: SamplingParams, prompt: Tokens, stop_ids: Tokens = ()) -> None:
        self._rows = {state: torch.tensor(row, dtype=torch.float64) for state, row in logits.items()}
        self._order = len(next(iter(logits)))
        self._params, self._prompt, self._stop_ids = params, prompt, stop_ids
        self._one, self._block = cache(self._law_after_last), cache(self._laws_of_block)

    def __call__(self, context: Tokens) -> Law:
        """As a drafter asks: the newest token is a draft, all before it are committed."""
        return self._one(context)

    def block(self, context: Tokens, drafted: Tokens) -> tuple[Law, ...]:
        """As the engine asks: the whole block in one call."""
        return self._block(context, drafted)

    def _law_after_last(self, context: Tokens) -> Law:
        split = max(len(context) - 1, len(self._prompt))
        return self._processing(context[:split]).law_after(self._logits([context]), context[split:])

    def _laws_of_block(self, context: Tokens, drafted: Tokens) -> tuple[Law, ...]:
        prefixes = [context + drafted[:length] for length in range(len(drafted) + 1)]
        law = self._processing(context).law(self._logits(prefixes), drafted)
        return tuple(law.rows(row, row + 1) for row in range(len(law)))

    def _processing(self, committed: Tokens) -> Processing:
        processing = Processing(self._params, self._prompt, stop_ids=self._stop_ids)
        for token in committed[len(self._prompt) :]:
            processing.commit(token)
        return processing

    def _logits(self, prefixes: Sequence[Tokens]) -> Tensor:
        return torch.stack([self._rows[prefix[len(prefix) - self._order :]] for prefix in prefixes])


@final
class Moody(LogitsProcessor):
    """A user's own processor: what was said an odd number of times loses 1.25, and 0 may not follow 0."""

    def __call__(self, input_ids: torch.LongTensor, scores: Tensor) -> Tensor:
        """In tensors, as users write them."""
        counts = torch.bincount(input_ids[0], minlength=scores.shape[1])
        scores = scores - 1.25 * (counts % 2)
        if int(input_ids[0, -1]) == 0:
            scores[:, 0] = -math.inf
        return scores


def moody(said: Tokens, row: list[float]) -> list[float]:
    """``Moody`` in plain Python."""
    row = [logit - 1.25 * (said.count(token) % 2) for token, logit in enumerate(row)]
    return [-math.inf, *row[1:]] if said[-1] == 0 else row


def plain_request(
    logits: LogitTable,
    params: SamplingParams,
    prompt: Tokens,
    stop_ids: Tokens = (),
    user: Callable[[Tokens, list[float]], list[float]] = lambda _, row: row,
) -> Callable[[Tokens], list[float]]:
    """Next-token laws by definition, recounted from nothing for every context; for ``chain_law``.

    Args:
        logits: The target's table.
        params: As in the package, but ``processors`` are not called.
        prompt: Start of every context.
        stop_ids: What ``min_new_tokens`` forbids.
        user: Stands for ``params.processors``.
    """
    order = len(next(iter(logits)))
    cuts = params.truncation

    def law_after(context: Tokens) -> list[float]:
        answer = context[len(prompt) :]
        row = []
        for token, logit in enumerate(logits[context[len(context) - order :]]):
            logit += dict(params.logit_bias).get(token, 0.0)
            if token in context:
                logit = logit / params.repetition_penalty if logit > 0 else logit * params.repetition_penalty
            if token in answer:
                logit -= params.presence_penalty
            logit -= params.frequency_penalty * answer.count(token)
            said_and_token = (*context, token)
            if any(said_and_token[-len(word) :] == tuple(word) for word in params.bad_words):
                logit = -math.inf
            if token in stop_ids and len(answer) < params.min_new_tokens:
                logit = -math.inf
            row.append(logit)
        return plain_row(user(context, row), cuts)

    return law_after
