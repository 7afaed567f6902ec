"""The least length of an answer."""

from collections.abc import Sequence
from typing import final

from jaxtyping import Float
from torch import Tensor

from forerun.distributions.bad_words import forbid
from forerun.distributions.prefix_step import PrefixStep


@final
class MinNewTokens(PrefixStep):
    """Forbids the stop ids until the answer has enough tokens, drafted ones included.

    Args:
        count: Enough.
        stop_ids: What ends an answer.
    """

    def __init__(self, count: int, stop_ids: Sequence[int]) -> None:
        self._missing = count
        self._stop_ids = list(stop_ids)

    def commit(self, token_id: int) -> None:
        """See ``PrefixStep``."""
        self._missing -= 1

    def apply(self, logits: Float[Tensor, "rows vocab"], paths: Sequence[Sequence[int]]) -> Float[Tensor, "rows vocab"]:
        """See ``PrefixStep``."""
        early = [row for row, path in enumerate(paths) if len(path) < self._missing]
        if not early:
            return logits
        return forbid(logits, [row for row in early for _ in self._stop_ids], self._stop_ids * len(early))
