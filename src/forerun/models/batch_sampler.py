"""Plain sampling of many answers at once: how training text is written.

Not the engine: nothing is drafted here, and no per-round record is kept. Each row draws from uniforms of its own, so
its text does not depend on which rows share its batch (up to the rounding of batched kernels).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from forerun.distributions import SamplingParams, law_from_logits
from forerun.models.growing_cache import growing_cache
from forerun.models.transformers_target import TransformersTarget

_COMPACT_BELOW = 0.8  # drop finished rows once fewer than this share are still writing


@torch.inference_mode()
def sample_batch(
    target: TransformersTarget,
    prompts: list[list[int]],
    *,
    params: SamplingParams,
    max_new_tokens: int,
    uniforms: Float[Tensor, "rows max_new_tokens"],
    advance: Callable[[int], None] = lambda _tokens: None,
) -> list[list[int]]:
    """Answers to ``prompts``; each ends with a stop id or after ``max_new_tokens`` tokens.

    Args:
        target: the model that writes.
        prompts: token ids, at least one each.
        params: how each next-token law is processed.
        max_new_tokens: cap on every answer.
        uniforms: one uniform in [0, 1) for every token that may be written.
        advance: called with the number of tokens written after every step.

    Returns:
        Token ids of each answer, stop id included.
    """
    answers: list[list[int]] = [[] for _ in prompts]
    stop_ids = set(target.stop_ids)
    token_ids, mask = _left_pad(prompts, target.device)
    rows = torch.arange(len(prompts))  # which answer each row of the batch belongs to
    cache = growing_cache()
    for step in range(max_new_tokens):
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, -token_ids.shape[1] :]
        logits = target.model(
            input_ids=token_ids,
            attention_mask=mask,
            position_ids=positions,
            cache=cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, 0]
        sampled = law_from_logits(logits, params).sample(uniforms=uniforms[rows, step])
        writing, written = [], 0
        for index, (row, token_id) in enumerate(zip(rows.tolist(), sampled.tolist(), strict=True)):
            finished = bool(answers[row]) and answers[row][-1] in stop_ids
            if not finished:
                answers[row].append(token_id)
                written += 1
                if token_id not in stop_ids:
                    writing.append(index)
        advance(written)
        if not writing:
            break
        if len(writing) < _COMPACT_BELOW * len(rows):
            keep = torch.tensor(writing)
            rows, sampled, mask = rows[keep], sampled[keep], mask[keep]
            cache.batch_select_indices(keep)
        token_ids = sampled[:, None]
        mask = torch.cat([mask, mask.new_ones(len(rows), 1)], dim=1)
    return answers


def _left_pad(
    prompts: list[list[int]], device: torch.device
) -> tuple[Int[Tensor, "rows width"], Int[Tensor, "rows width"]]:
    width = max(len(prompt) for prompt in prompts)
    token_ids = torch.zeros(len(prompts), width, dtype=torch.int64)
    mask = torch.zeros_like(token_ids)
    for row, prompt in enumerate(prompts):
        token_ids[row, width - len(prompt) :] = torch.tensor(prompt)
        mask[row, width - len(prompt) :] = 1
    return token_ids.to(device), mask.to(device)
