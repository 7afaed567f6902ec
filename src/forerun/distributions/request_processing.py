"""Logits of one request to laws, with what the request has said so far."""

from collections.abc import Sequence
from typing import final

from jaxtyping import Float
from torch import Tensor

from forerun.distributions.law import Law
from forerun.distributions.params import SamplingParams
from forerun.distributions.processing import law_from_logits


@final
class Processing:
    """The sampling parameters of one request together with its prompt and answer.

    The target's rows and the drafter's go through the same object, each row with the tokens that would stand before
    it: prompt, answer and the drafted tokens of the block so far.

    Args:
        params: What the user asked for.
        prompt_ids: The prompt.
        stop_ids: Tokens that end the answer.
    """

    def __init__(self, params: SamplingParams, prompt_ids: Sequence[int], *, stop_ids: Sequence[int] = ()) -> None:
        """Starts with an empty answer."""
        self._params = params
        self._prompt_ids = list(prompt_ids)
        self._stop_ids = tuple(stop_ids)
        self._answer: list[int] = []

    @property
    def params(self) -> SamplingParams:
        """As given."""
        return self._params

    def commit(self, token_id: int) -> None:
        """The answer grew by one token."""
        self._answer.append(token_id)

    def law(self, logits: Float[Tensor, "rows vocab"], drafted: Sequence[int] = ()) -> Law:
        """Laws along a chain: row j stands after prompt, answer and ``drafted[:j]``.

        Args:
            logits: One row more than there are drafted tokens.
            drafted: The block's draft tokens.

        Raises:
            UnusableLogits: A row holds NaN or plus infinity, or nothing but minus infinity.
        """
        assert len(logits) == len(drafted) + 1
        return law_from_logits(logits, self._params)

    def law_after(self, logits: Float[Tensor, "1 vocab"], drafted: Sequence[int]) -> Law:
        """Law of the one row that stands after all of ``drafted``. Raises as ``law`` does."""
        return law_from_logits(logits, self._params)

    def law_of_paths(self, logits: Float[Tensor, "rows vocab"], paths: Sequence[Sequence[int]]) -> Law:
        """Laws in a tree: row i stands after the draft tokens ``paths[i]``. Raises as ``law`` does."""
        assert len(logits) == len(paths)
        return law_from_logits(logits, self._params)
