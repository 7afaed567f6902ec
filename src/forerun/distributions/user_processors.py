"""A user's own processors, called as transformers calls them."""

from array import array
from collections.abc import Sequence
from typing import final

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from forerun.distributions.params import LogitsProcessor
from forerun.distributions.prefix_step import PrefixStep
from forerun.errors import ForerunError


@final
class UserProcessors(PrefixStep):
    """Calls each processor for each row, with all tokens that would stand before it.

    Args:
        processors: Called in order; each must be a function of its arguments.
        prompt_ids: The prompt.
    """

    def __init__(self, processors: Sequence[LogitsProcessor], prompt_ids: Sequence[int]) -> None:
        self._processors = tuple(processors)
        self._said = array("q", prompt_ids)

    def commit(self, token_id: int) -> None:
        """See ``PrefixStep``."""
        self._said.append(token_id)

    def apply(self, logits: Float[Tensor, "rows vocab"], paths: Sequence[Sequence[int]]) -> Float[Tensor, "rows vocab"]:
        """See ``PrefixStep``.

        Raises:
            ForerunError: A processor returned something other than one row of scores.
        """
        said = np.array(self._said)
        return torch.cat(
            [
                self._processed(np.concatenate([said, np.array(path, dtype=np.int64)]), logits[row : row + 1].clone())
                for row, path in enumerate(paths)
            ]
        )

    def _processed(self, prefix: np.ndarray, scores: Float[Tensor, "1 vocab"]) -> Float[Tensor, "1 vocab"]:
        shape = scores.shape
        input_ids = torch.from_numpy(prefix)[None].to(scores.device)
        for processor in self._processors:
            scores = processor(input_ids, scores)
            if not isinstance(scores, Tensor) or scores.shape != shape:
                raise ForerunError(
                    f"{type(processor).__name__} did not return scores of shape {tuple(shape)}; "
                    "a processor takes ids (1, length) and scores (1, vocab) and returns the new scores"
                )
        return scores
