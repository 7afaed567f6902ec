"""The part of the target's vocabulary that a pruned drafter can propose."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from forerun.errors import ForerunError


@final
class DraftVocabulary:
    """An immutable, ordered choice of target ids; draft id i means target id ``target_ids[i]``.

    Tokens outside it are never drafted (their draft probability is zero) but come out all the same, through the
    correction that follows a rejection. Ascending order keeps "lowest id wins" true in both numberings.

    Args:
        target_ids: strictly ascending.
        target_vocab_size: width of the target's logits.

    Raises:
        ForerunError: ids are not ascending or out of range.

    Example:
        >>> import torch
        >>> vocabulary = DraftVocabulary(torch.tensor([0, 3, 5, 9]), 10)
        >>> vocabulary.to_draft(torch.tensor([3, 4])).tolist()
        [1, 4]
        >>> vocabulary.offsets().tolist()
        [0, 2, 3, 6]
        >>> vocabulary.drafted().nonzero()[:, 0].tolist()
        [0, 3, 5, 9]
    """

    def __init__(self, target_ids: Int[Tensor, " draft_vocab"], target_vocab_size: int) -> None:
        ids = target_ids.to(torch.int64)
        if len(ids) == 0 or bool((ids.diff() <= 0).any()) or int(ids[0]) < 0 or int(ids[-1]) >= target_vocab_size:
            raise ForerunError(
                f"draft vocabulary: its {len(ids)} ids are not strictly ascending within 0..{target_vocab_size - 1}; "
                "the checkpoint is damaged"
            )
        self.target_ids = ids
        self.target_vocab_size = target_vocab_size
        draft_ids = torch.full((target_vocab_size,), len(ids), dtype=torch.int64)
        draft_ids[ids] = torch.arange(len(ids))
        self._maps = {ids.device: (ids, draft_ids)}

    @classmethod
    def most_frequent(cls, counts: Int[Tensor, " vocab"], size: int, *, always: Sequence[int] = ()) -> DraftVocabulary:
        """The ``size`` most frequent ids; equal counts (zero, too) go to the lower id, so the size is always met.

        Args:
            counts: occurrences of each target id in the training answers.
            size: of the draft vocabulary.
            always: ids that are kept whatever their counts, the target's stop ids for example: plain text has none.
        """
        if not 1 <= size <= len(counts):
            raise ForerunError(f"draft vocabulary size {size} must lie in 1..{len(counts)}")
        if len(set(always)) > size:
            raise ForerunError(f"draft vocabulary size {size} is below the {len(set(always))} ids that it must hold")
        ranked = counts.clone()
        ranked[list(always)] = torch.iinfo(counts.dtype).max
        order = torch.argsort(ranked, descending=True, stable=True)
        return cls(order[:size].sort().values, len(counts))

    def __len__(self) -> int:
        """Number of tokens that can be drafted; also the draft id that stands for every other token."""
        return len(self.target_ids)

    def to_draft(self, token_ids: Int[Tensor, "*batch"]) -> Int[Tensor, "*batch"]:
        """Draft ids; ``len(self)`` for tokens outside."""
        _, draft_ids = self._on(token_ids.device)
        return draft_ids.take(token_ids)  # an index without a dimension would be fetched by the host

    def spread(self, logits: Float[Tensor, "rows draft_vocab"]) -> Float[Tensor, "rows vocab"]:
        """Draft logits in the target's numbering; what cannot be drafted has minus infinity, so probability 0."""
        wide = logits.new_full((len(logits), self.target_vocab_size), -torch.inf)
        target_ids, _ = self._on(logits.device)
        wide[:, target_ids] = logits
        return wide

    def _on(self, device: torch.device) -> tuple[Int[Tensor, " draft_vocab"], Int[Tensor, " vocab"]]:
        """Draft ids to target ids and back, copied to a device once."""
        if device not in self._maps:
            target_ids, draft_ids = self._maps[self.target_ids.device]
            with torch.inference_mode(False):  # decoding may be the first to ask, and training uses the copies, too
                self._maps[device] = target_ids.to(device), draft_ids.to(device)
        return self._maps[device]

    def offsets(self) -> Int[Tensor, " draft_vocab"]:
        """``target id - draft id`` for every draft id: the ``d2t`` of EAGLE-3 checkpoints."""
        return self.target_ids - torch.arange(len(self))

    def drafted(self) -> Bool[Tensor, " vocab"]:
        """Whether a target id can be drafted: the ``t2d`` of EAGLE-3 checkpoints."""
        return self.to_draft(torch.arange(self.target_vocab_size)) < len(self)

    def coverage(self, counts: Int[Tensor, " vocab"]) -> float:
        """Share of occurrences that the vocabulary holds."""
        return float(counts[self.target_ids].sum() / counts.sum().clamp(min=1))

    @property
    def fingerprint(self) -> str:
        """Hash of the map."""
        return hashlib.sha256(self.target_ids.numpy().tobytes()).hexdigest()
