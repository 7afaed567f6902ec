"""Penalties on tokens that were said before."""

from array import array
from collections.abc import Sequence
from typing import final

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from forerun.distributions.params import SamplingParams
from forerun.distributions.prefix_step import PrefixStep


@final
class Penalties(PrefixStep):
    """Repetition, presence and frequency penalty, from running counts.

    With ``count`` the number of times a token occurs in answer and draft, its logit becomes, where it was said,
    ``logit / repetition`` (``logit * repetition`` if negative), then
    ``logit - presence * [count > 0] - frequency * count``. The repetition penalty also looks at the prompt.

    Args:
        params: Strengths.
        prompt_ids: The prompt.

    References:
        Keskar et al. 2019, arXiv:1909.05858, section 4.1 (repetition; the treatment of negative logits is
        transformers'); the API of OpenAI (presence and frequency).
    """

    def __init__(self, params: SamplingParams, prompt_ids: Sequence[int]) -> None:
        self._params = params
        in_prompt = dict.fromkeys(prompt_ids) if params.repetition_penalty != 1.0 else {}
        # Tokens said so far stand in columns, in the order of their first occurrence.
        self._column = {token_id: column for column, token_id in enumerate(in_prompt)}
        self._token_ids = array("q", in_prompt)
        self._counts = array("q", [0] * len(in_prompt))

    def commit(self, token_id: int) -> None:
        """See ``PrefixStep``."""
        column = self._column.setdefault(token_id, len(self._column))
        if column == len(self._counts):
            self._token_ids.append(token_id)
            self._counts.append(0)
        self._counts[column] += 1

    def apply(self, logits: Float[Tensor, "rows vocab"], paths: Sequence[Sequence[int]]) -> Float[Tensor, "rows vocab"]:
        """See ``PrefixStep``."""
        known = len(self._column)
        fresh: dict[int, int] = {}  # columns of tokens that only the drafts hold
        rows, columns = [], []
        for row, path in enumerate(paths):
            for token_id in path:
                column = self._column.get(token_id)
                columns.append(fresh.setdefault(token_id, known + len(fresh)) if column is None else column)
                rows.append(row)
        counts = np.zeros((len(paths), known + len(fresh)), dtype=np.int64)
        counts[:, :known] = np.array(self._counts)
        np.add.at(counts, (np.array(rows, dtype=np.int64), np.array(columns, dtype=np.int64)), 1)
        said = counts > 0
        said[:, :known] = True  # in the prompt, if not in the answer
        said_ids = np.concatenate([np.array(self._token_ids), np.array(list(fresh), dtype=np.int64)])
        token_ids = torch.from_numpy(said_ids).to(logits.device)
        penalised = self._penalised(
            logits[:, token_ids],
            said=torch.from_numpy(said).to(logits.device),
            counts=torch.from_numpy(counts).to(logits.device, logits.dtype),
        )
        return logits.index_copy(1, token_ids, penalised)

    def _penalised(
        self, logits: Float[Tensor, "rows said"], *, said: Tensor, counts: Float[Tensor, "rows said"]
    ) -> Float[Tensor, "rows said"]:
        params = self._params
        repeated = torch.where(logits < 0, logits * params.repetition_penalty, logits / params.repetition_penalty)
        logits = torch.where(said, repeated, logits)
        return logits - params.presence_penalty * counts.sign() - params.frequency_penalty * counts
