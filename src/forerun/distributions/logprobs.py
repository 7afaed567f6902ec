"""Log-probabilities to show beside an answer; nothing is drawn from them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from forerun.errors import ForerunError


@final
@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """What the target thought of an emitted token.

    Attributes:
        token_id: The token.
        logprob: Natural logarithm of its probability.
        top: The most probable tokens, best first, as (token id, logprob); the lowest id first among equals.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]


def token_logprobs(
    logits: Float[Tensor, "rows vocab"], token_ids: Sequence[int], *, top: int = 0
) -> list[TokenLogprob]:
    """Log-probabilities of the unprocessed logits, at temperature 1, as vLLM reports them by default.

    ``log_softmax(logits)`` in float64. A token that the processing had lifted or left out keeps the value that the
    model gave it.

    Args:
        logits: Row i is the target's before token i was drawn.
        token_ids: One token per row.
        top: How many of the most probable tokens to list for each row.

    Raises:
        ForerunError: ``top`` is negative or above the size of the vocabulary.

    Example:
        >>> logits = torch.tensor([[0.5, 0.25, 0.25]], dtype=torch.float64).log()
        >>> found = token_logprobs(logits, [1], top=2)[0]
        >>> found.token_id, round(found.logprob, 4), [token_id for token_id, _ in found.top]
        (1, -1.3863, [0, 1])
    """
    vocab_size = logits.shape[-1]
    if not 0 <= top <= vocab_size:
        raise ForerunError(f"{top} top log-probabilities were asked for; give a number from 0 to {vocab_size}")
    log_probs = torch.log_softmax(logits.double(), -1)
    of_tokens = log_probs.gather(-1, torch.tensor(token_ids, dtype=torch.int64, device=logits.device)[:, None])[
        :, 0
    ].tolist()
    return [
        TokenLogprob(token_id, logprob, _most_probable(row, top))
        for token_id, logprob, row in zip(token_ids, of_tokens, log_probs, strict=True)
    ]


def _most_probable(log_probs: Float[Tensor, " vocab"], top: int) -> tuple[tuple[int, float], ...]:
    if top == 0:
        return ()
    # topk alone leaves the order of equals open, and which of them it lists at the end.
    token_ids = (log_probs >= log_probs.topk(top).values[-1]).nonzero()[:, 0]
    values, order = log_probs[token_ids].sort(descending=True, stable=True)
    return tuple(zip(token_ids[order][:top].tolist(), values[:top].tolist(), strict=True))
