"""What two drafters share that are smaller models: reading one request, and going back after a draft."""

from __future__ import annotations

from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from forerun.errors import ForerunError
from forerun.models import Block, Target


def check_vocabularies(model: Target, target: Target) -> None:
    """Refuses a pair whose vocabularies differ in size.

    Raises:
        ForerunError: they do.
    """
    if model.vocab_size != target.vocab_size:
        raise ForerunError(
            f"draft model {model.name} has {model.vocab_size} tokens, {target.name} has {target.vocab_size}; "
            "choose a pair that shares one tokenizer"
        )


@final
class SmallModelReader:
    """A small model's cache for one request; committed tokens wait until a draft needs them.

    Args:
        model: the small model.
    """

    def __init__(self, model: Target) -> None:
        self._model = model
        self._cache = model.new_cache()
        self._pending: list[int] = []

    @property
    def length(self) -> int:
        """Tokens taken in."""
        return self._cache.length + len(self._pending)

    def extend(self, token_ids: Int[Tensor, " length"]) -> None:
        """Take in committed tokens."""
        self._pending += token_ids.tolist()

    def read_up_to(self, last_token: int, *further: int) -> Float[Tensor, "num_logits vocab"]:
        """Logits after all tokens taken in and ``last_token``, and after each of ``further`` tokens behind it."""
        unseen = torch.tensor([*self._pending, last_token, *further])
        self._pending = []
        return self.read(unseen, num_logits=1 + len(further))

    def read(
        self, token_ids: Int[Tensor, " length"], *, parents: tuple[int, ...] | None = None, num_logits: int
    ) -> Float[Tensor, "num_logits vocab"]:
        """Logits of the last ``num_logits`` of further tokens; ``parents`` as in ``Block``."""
        block = Block(cache=self._cache, token_ids=token_ids, parents=parents)
        return self._model.forward_batch([block], num_logits=num_logits)[0].logits

    def back_to(self, length: int) -> None:
        """Forget what was read from position ``length`` on."""
        self._cache.rollback(length)
