"""What a horizon policy may look at before drafting, as far as it asks: of the target's law, states and text."""

from __future__ import annotations

from functools import lru_cache
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from forerun.engine.suffix_match import SuffixMatch
from forerun.engine.token_classes import class_of_token
from forerun.horizons import HIDDEN_DIMS, RoundContext, Signal, TokenClass
from forerun.models import Target, TransformersTarget


@final
class Signals:
    """Follows one request: what the target showed behind the last committed token, and what that token is.

    Args:
        target: of the request.
        wants: of the request's policy; nothing else is computed.
        prompt_ids: the tokens that stand before the answer.
    """

    def __init__(self, target: Target, wants: frozenset[Signal], prompt_ids: tuple[int, ...]) -> None:
        self._target = target
        self._wants = wants
        self._last = prompt_ids[-1]
        self._last_repeats = False
        self._seen = set(prompt_ids)
        self._match = SuffixMatch() if Signal.SUFFIX_MATCH in wants else None
        if self._match is not None:
            for token_id in prompt_ids:
                self._match.push(token_id)
        self._law: tuple[float, float, float] | None = None
        self._hidden: tuple[float, ...] | None = None

    def push(self, token_id: int) -> None:
        """Take in a committed token."""
        self._last = token_id
        self._last_repeats = token_id in self._seen
        self._seen.add(token_id)
        if self._match is not None:
            self._match.push(token_id)

    def see(self, logits: Float[Tensor, " vocab"], features: Float[Tensor, "layers hidden"]) -> None:
        """Take in the target's row behind the last committed token.

        The law is read at temperature 1, so that greedy decoding has it too; the state is the last captured layer's.
        """
        if Signal.TARGET_LAW in self._wants:
            self._law = law_numbers(torch.log_softmax(logits.float(), dim=-1))
        if Signal.HIDDEN_STATE in self._wants:
            self._hidden = projected(features[-1])

    def context(
        self,
        *,
        limit: int,
        length: int,
        generated: int,
        temperature: float,
        batch_size: int,
        draft_margins: tuple[float, ...] | None,
    ) -> RoundContext:
        """Everything that the policy may know; see ``RoundContext``."""
        entropy, top_prob, margin = (None, None, None) if self._law is None else self._law
        return RoundContext(
            limit=limit,
            context_length=length,
            generated=generated,
            temperature=temperature,
            target_entropy=entropy,
            target_top_prob=top_prob,
            target_margin=margin,
            last_token_repeats=self._last_repeats,
            token_class=self._token_class(),
            suffix_match=None if self._match is None else self._match.length,
            hidden=self._hidden,
            draft_margins=draft_margins,
            batch_size=batch_size,
        )

    def _token_class(self) -> TokenClass | None:
        target = self._target
        if Signal.TOKEN_CLASS not in self._wants or not isinstance(target, TransformersTarget):
            return None
        return class_of_token(target.tokenizer, self._last) if target.has_tokenizer else None


def law_numbers(log_probs: Float[Tensor, " vocab"]) -> tuple[float, float, float]:
    """Entropy in nats, largest probability, and largest minus second largest, of a law given by its logarithms."""
    probs = log_probs.exp()
    first, second = probs.topk(2).values.tolist()
    return float(-torch.dot(probs, log_probs.clamp(min=-1e4))), first, first - second


def projected(hidden: Float[Tensor, " hidden"]) -> tuple[float, ...]:
    """A hidden state, normalised to mean 0 and variance 1, in 32 directions of random signs, each of unit variance.

    The signs are the same in every process, so that what a policy has learned keeps its meaning.
    """
    normal = torch.nn.functional.layer_norm(hidden.float(), hidden.shape)
    return tuple((normal.cpu() @ _directions(hidden.shape[0])).tolist())


@lru_cache(maxsize=8)
def _directions(size: int) -> Float[Tensor, "hidden 32"]:
    signs = torch.randint(0, 2, (size, HIDDEN_DIMS), generator=torch.Generator().manual_seed(0))
    return (2.0 * signs - 1.0).div(size**0.5)
