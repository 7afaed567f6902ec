"""The target's law on blocks of a chunk, from what is stored of it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from forerun.losses.fused.laws import TargetStates, TopKTarget
from forerun.losses.fused.positions import Positions
from forerun.losses.fused.products import add_logits_
from forerun.losses.fused.rows import Law, exp_of, law_


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TargetLogits:
    """The target's law before its softmax.

    Attributes:
        logits: bias and cap applied; float32.
        log_normaliser: of each row; computed from the row where None.
        draft_token_ids: columns of the draft vocabulary; all, in order, where None.
    """

    logits: Float[Tensor, "rows target_vocab"]
    log_normaliser: Float[Tensor, " rows"] | None
    draft_token_ids: Int64[Tensor, " draft_vocab"] | None


class TargetRows(ABC):
    """One source of target laws at work: `enter` a chunk, then ask for its blocks."""

    @abstractmethod
    def enter(self, chunk: Positions) -> None:
        """Do what is done once a chunk."""

    @abstractmethod
    def law(self, block: Positions, offset: int) -> Law:
        """The law on the draft vocabulary, not renormalised, in tensors that the caller may overwrite.

        Args:
            block: some positions of the chunk.
            offset: where they begin in it.
        """

    @abstractmethod
    def logits(self, chunk: Positions) -> TargetLogits:
        """The whole chunk before its softmax, for a kernel that does the rest."""


@final
class StatesRows(TargetRows):
    """Recomputes logits into one buffer that all chunks share."""

    def __init__(self, source: TargetStates, *, rows: int, spare: int, dtype: torch.dtype) -> None:
        self._source = source
        self._spare = spare
        self._logits = source.hidden.new_empty(rows, source.weight.shape[0], dtype=dtype)
        self._bias = None if source.bias is None else source.bias.to(dtype)

    def enter(self, chunk: Positions) -> None:
        """One matrix product."""
        hidden = chunk.read(self._source.hidden).to(self._logits.dtype)
        add_logits_(self._logits[: chunk.count], hidden, self._source.weight, spare=self._spare, onto=False)

    def law(self, block: Positions, offset: int) -> Law:
        """Bias, cap, normalise, gather."""
        logits = self._finished_(self._logits[offset : offset + block.count])
        if self._source.log_normaliser is not None:
            logits -= block.read(self._source.log_normaliser).to(logits.dtype)[:, None]
            return _of_log_probs(logits)
        law = law_(logits)
        ids = self._source.draft_token_ids
        if ids is None:
            return law
        return Law(
            logits=law.logits.index_select(-1, ids),
            log_normaliser=law.log_normaliser,
            probs=law.probs.index_select(-1, ids),
        )

    def logits(self, chunk: Positions) -> TargetLogits:
        """Bias and cap."""
        normaliser = self._source.log_normaliser
        return TargetLogits(
            logits=self._finished_(self._logits[: chunk.count]),
            log_normaliser=None if normaliser is None else chunk.read(normaliser).to(self._logits.dtype),
            draft_token_ids=self._source.draft_token_ids,
        )

    def _finished_(self, logits: Float[Tensor, "rows target_vocab"]) -> Float[Tensor, "rows target_vocab"]:
        if self._bias is not None:
            logits += self._bias
        if self._source.soft_cap is not None:
            logits.div_(self._source.soft_cap).tanh_().mul_(self._source.soft_cap)
        return logits


@final
class TopKRows(TargetRows):
    """Spreads stored log-probabilities over rows that are empty otherwise."""

    def __init__(self, source: TopKTarget, *, draft_vocab: int, dtype: torch.dtype) -> None:
        self._source = source
        self._draft_vocab = draft_vocab
        self._dtype = dtype

    def enter(self, chunk: Positions) -> None:
        """Nothing: a block is as cheap alone."""

    def law(self, block: Positions, offset: int) -> Law:
        """Probabilities of the spread rows."""
        return _of_log_probs(self._spread(block))

    def logits(self, chunk: Positions) -> TargetLogits:
        """Logarithms that are normalised already."""
        rows = self._spread(chunk)
        return TargetLogits(logits=rows, log_normaliser=rows.new_zeros(chunk.count), draft_token_ids=None)

    def _spread(self, block: Positions) -> Float[Tensor, "rows draft_vocab"]:
        """Tokens outside the draft vocabulary are read at index 0 with probability 0; the larger of two stays there."""
        token_ids = block.read(self._source.token_ids)
        stored = block.read(self._source.log_probs).to(self._dtype)
        stored = torch.where(token_ids >= 0, stored, -math.inf)
        rows = stored.new_full((block.count, self._draft_vocab), -math.inf)
        return rows.scatter_reduce_(1, token_ids.clamp(min=0), stored, "amax")


def _of_log_probs(log_probs: Float[Tensor, "rows vocab"]) -> Law:
    return Law(logits=log_probs, log_normaliser=log_probs.new_zeros(len(log_probs)), probs=exp_of(log_probs))
