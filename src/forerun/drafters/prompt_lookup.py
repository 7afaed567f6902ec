"""Draft by copying: find the latest earlier occurrence of the last few tokens and propose what followed it.

Nothing is sampled, so the realised law is one-hot, whatever the temperature (Saxena's prompt look-up decoding).
"""

from __future__ import annotations

from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from forerun.distributions import PointLaw, Processing
from forerun.drafters.declarations import Dependence, Need, Saving
from forerun.drafters.drafter import Drafter, DrafterSession
from forerun.drafters.stop import DraftStop
from forerun.errors import ForerunError
from forerun.verification import Proposal


@final
class PromptLookup(Drafter):
    """N-gram look-up over prompt and answer.

    Args:
        vocab_size: of the target.
        max_ngram: longest suffix to search for; shorter ones are tried when it is not found.
        max_horizon: most tokens copied in one round.
    """

    def __init__(self, vocab_size: int, *, max_ngram: int = 3, max_horizon: int = 16) -> None:
        if max_ngram < 1 or max_horizon < 1:
            raise ForerunError(f"max_ngram and max_horizon must be at least 1, got {max_ngram} and {max_horizon}")
        self.vocab_size = vocab_size
        self.max_ngram = max_ngram
        self._max_horizon = max_horizon

    @property
    def name(self) -> str:
        """``prompt-lookup``."""
        return "prompt-lookup"

    @property
    def max_horizon(self) -> int:
        """Most tokens copied in one round."""
        return self._max_horizon

    captured_layers = ()
    max_positions = None
    prefix_consistent = True  # a shorter copy is a prefix of a longer one
    dependence = Dependence.FULL
    saving = Saving.VERIFICATION
    needs: frozenset[Need] = frozenset()

    def new_session(self) -> PromptLookupSession:
        """State for one request."""
        return PromptLookupSession(self)


@final
class PromptLookupSession(DrafterSession):
    """The tokens so far, and where each n-gram was seen last."""

    def __init__(self, drafter: PromptLookup) -> None:
        self._drafter = drafter
        self._tokens: list[int] = []
        self._end_of: dict[tuple[int, ...], int] = {}  # n-gram -> index just after its latest occurrence

    @property
    def length(self) -> int:
        """Tokens taken in."""
        return len(self._tokens)

    def extend(self, token_ids: Int[Tensor, " length"], features: Float[Tensor, "length layers hidden"]) -> None:
        """See :class:`DrafterSession`; features are ignored."""
        for token_id in token_ids.tolist():
            # n-grams are indexed once a following token is known, so a suffix never finds itself
            for size in range(1, min(self._drafter.max_ngram, len(self._tokens)) + 1):
                self._end_of[tuple(self._tokens[-size:])] = len(self._tokens)
            self._tokens.append(token_id)

    def propose(
        self,
        last_token: int,
        horizon: int,
        processing: Processing,
        *,
        uniforms: Float[Tensor, " horizon"],
        stop: DraftStop | None = None,
    ) -> Proposal:
        """See :class:`DrafterSession`; the other arguments change nothing, since nothing is drawn."""
        copied = self._lookup([*self._tokens[-self._drafter.max_ngram :], last_token], horizon, last_token)
        token_ids = torch.tensor(copied, dtype=torch.int64)
        return Proposal(token_ids=token_ids, law=PointLaw(token_ids, self._drafter.vocab_size))

    def _lookup(self, recent: list[int], horizon: int, last_token: int) -> list[int]:
        for size in range(min(self._drafter.max_ngram, len(recent)), 0, -1):
            start = self._end_of.get(tuple(recent[-size:]))
            if start is not None:
                return [*self._tokens[start:], last_token][:horizon]
        return []
