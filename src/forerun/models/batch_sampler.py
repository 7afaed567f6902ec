"""Plain sampling of many answers at once: how training text is written.

Not the engine: nothing is drafted here, and no per-round record is kept. Each row draws from uniforms of its own, so
its text does not depend on which rows share its batch (up to the rounding of batched kernels).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from forerun.distributions import SamplingParams, law_from_logits
from forerun.models.target import Block, Target


@torch.inference_mode()
def sample_batch(
    target: Target,
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
    batch = target.new_batch()
    writing = list(range(len(prompts)))  # which answers have not ended
    caches = [batch.add() for _ in prompts]
    inputs = [torch.tensor(prompt) for prompt in prompts]
    for step in range(max_new_tokens):
        blocks = [Block(cache=caches[row], token_ids=inputs[row]) for row in writing]
        logits = torch.cat([row.logits for row in target.forward_batch(blocks, num_logits=1)])
        sampled = law_from_logits(logits, params).sample(uniforms=uniforms[writing, step]).cpu()
        for row, token_id in zip(writing, sampled, strict=True):
            answers[row].append(int(token_id))
            inputs[row] = token_id[None]
        advance(len(writing))
        for row in writing:
            if answers[row][-1] in stop_ids:
                batch.remove(caches[row])
        writing = [row for row in writing if answers[row][-1] not in stop_ids]
        if not writing:
            break
    return answers
