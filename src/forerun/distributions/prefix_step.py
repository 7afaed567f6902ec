"""The seam of processing steps that look at the tokens before a row."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor


class PrefixStep(ABC):
    """One step of processing, with what it remembers of a request's prompt and answer."""

    @abstractmethod
    def commit(self, token_id: int) -> None:
        """The answer grew by one token; constant time."""

    @abstractmethod
    def apply(self, logits: Float[Tensor, "rows vocab"], paths: Sequence[Sequence[int]]) -> Float[Tensor, "rows vocab"]:
        """Processed logits; row i stands after prompt, answer and the draft tokens ``paths[i]``.

        Drafted tokens are looked at and not remembered. The given tensor is not written into.
        """
