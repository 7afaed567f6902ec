"""Sequences of tokens that may not be said."""

from collections import deque
from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from forerun.distributions.prefix_step import PrefixStep


@final
class BadWords(PrefixStep):
    """Forbids the last token of a bad word where its beginning has just been said, the prompt included.

    Args:
        words: Token id sequences, each of at least one.
        prompt_ids: The prompt.
    """

    def __init__(self, words: Sequence[Sequence[int]], prompt_ids: Sequence[int]) -> None:
        self._endings: dict[tuple[int, ...], list[int]] = {}
        for word in words:
            self._endings.setdefault(tuple(word[:-1]), []).append(word[-1])
        self._sizes = sorted({len(beginning) for beginning in self._endings})
        self._recent = deque(prompt_ids, maxlen=self._sizes[-1])

    def commit(self, token_id: int) -> None:
        """See ``PrefixStep``."""
        self._recent.append(token_id)

    def apply(self, logits: Float[Tensor, "rows vocab"], paths: Sequence[Sequence[int]]) -> Float[Tensor, "rows vocab"]:
        """See ``PrefixStep``."""
        rows: list[int] = []
        banned: list[int] = []
        for row, path in enumerate(paths):
            said = (*self._recent, *path)
            for size in self._sizes:
                endings = self._endings.get(said[len(said) - size :], []) if size <= len(said) else []
                rows += [row] * len(endings)
                banned += endings
        return forbid(logits, rows, banned)


def forbid(
    logits: Float[Tensor, "rows vocab"], rows: Sequence[int], token_ids: Sequence[int]
) -> Float[Tensor, "rows vocab"]:
    """Logits with minus infinity added at the places (row, token id); NaN and plus infinity there become NaN."""
    places = (torch.tensor(rows, dtype=torch.int64), torch.tensor(token_ids, dtype=torch.int64))
    minus_infinity = torch.tensor(-torch.inf, dtype=logits.dtype, device=logits.device)
    return logits.index_put([place.to(logits.device) for place in places], minus_infinity, accumulate=True)
