"""Two greedy answers to one prompt: the same, different at a near-tie, or really different.

It compares and knows nothing of how the answers came about.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import final

import torch

from forerun.models import Target

NEAR_TIE_LOGITS = {torch.float64: 1e-5, torch.float32: 1e-3, torch.bfloat16: 1.0}
"""How far below the largest logit a token may lie and still be a greedy choice, by the target's number type.

Kernels of different widths (1, 2, 5, 8 rows and a whole text) add in different orders. For SmolLM2-135M the logits of
tokens within 2 of the largest moved by at most 4.6e-5 in float32 (3 prompts x 24 tokens) and by 0.5 in bfloat16, where
logits of 16 to 32 lie 0.125 apart (3 prompts x 16 tokens). Two tokens can move in opposite directions: twice that, and
in float32 a factor of ten for larger models. A wrong token is usually several logits away.
"""


class GreedyAgreement(StrEnum):
    """How two greedy answers compare."""

    IDENTICAL = "identical"
    NEAR_TIE = "near-tie"
    DIFFERENT = "real difference"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class GreedyDifference:
    """The first place at which two answers differ.

    Attributes:
        position: index in the answers.
        plain_token: id in the plain answer; ``None`` where it has ended.
        drafted_token: id in the answer with drafts; ``None`` where it has ended.
        gap: between the logits of the two tokens, from a fresh pass over what stands before them.
        below_largest: how far the lower of the two lies below the largest logit of that pass.
    """

    position: int
    plain_token: int | None
    drafted_token: int | None
    gap: float | None
    below_largest: float | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class GreedyVerdict:
    """What became of a comparison.

    Attributes:
        agreement: the verdict.
        num_tokens: compared: of the shorter answer.
        difference: ``None`` for identical answers.
        tolerance: in logits, below which tokens tie.
    """

    agreement: GreedyAgreement
    num_tokens: int
    difference: GreedyDifference | None
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether greedy decoding was kept, as far as the number type can tell."""
        return self.agreement is not GreedyAgreement.DIFFERENT

    def describe(self, token_of: Callable[[int], str] = str) -> str:
        """One line for people.

        Args:
            token_of: how to write a token; its id, if nothing is given.
        """
        found = self.difference
        if found is None:
            return f"identical, {self.num_tokens} tokens"
        names = [
            "the end" if token is None else repr(token_of(token)) for token in (found.plain_token, found.drafted_token)
        ]
        place = f"token {found.position + 1}: {names[0]} plain, {names[1]} with drafts"
        if found.gap is None:
            return f"{self.agreement}: {place}"
        return (
            f"{self.agreement}: {place}; their logits differ by {found.gap:.2g}, the lower one lies "
            f"{found.below_largest:.2g} below the largest (a tie is up to {self.tolerance:g})"
        )


def greedy_verdict(
    target: Target, prompt_ids: Sequence[int], plain: Sequence[int], drafted: Sequence[int]
) -> GreedyVerdict:
    """Compare two greedy answers, token by token.

    At the first difference the target reads prompt and common tokens afresh, in one pass. If both tokens lie within
    ``NEAR_TIE_LOGITS`` of the largest logit there, either is a greedy choice as far as the number type can tell, and
    what follows cannot be compared. An answer that ends where the other goes on is a real difference.

    Args:
        target: whose greedy answers they claim to be; no penalty or ban may have changed its logits.
        prompt_ids: the prompt of both.
        plain: answer of plain decoding.
        drafted: answer of speculative decoding.
    """
    tolerance = NEAR_TIE_LOGITS[target.dtype]
    shared = min(len(plain), len(drafted))
    position = next((place for place in range(shared) if plain[place] != drafted[place]), None)
    if position is None and len(plain) == len(drafted):
        return GreedyVerdict(
            agreement=GreedyAgreement.IDENTICAL, num_tokens=shared, difference=None, tolerance=tolerance
        )
    if position is None:
        agreement = GreedyAgreement.DIFFERENT
        difference = GreedyDifference(
            position=shared,
            plain_token=plain[shared] if shared < len(plain) else None,
            drafted_token=drafted[shared] if shared < len(drafted) else None,
            gap=None,
            below_largest=None,
        )
    else:
        prefix = torch.tensor([*prompt_ids, *plain[:position]])
        logits = target.forward(prefix, target.new_cache(), num_logits=1).logits[0].double()
        pair = logits[[plain[position], drafted[position]]]
        difference = GreedyDifference(
            position=position,
            plain_token=plain[position],
            drafted_token=drafted[position],
            gap=float((pair[0] - pair[1]).abs()),
            below_largest=float(logits.max() - pair.min()),
        )
        tied = bool(logits.max() - pair.min() <= tolerance)
        agreement = GreedyAgreement.NEAR_TIE if tied else GreedyAgreement.DIFFERENT
    return GreedyVerdict(agreement=agreement, num_tokens=shared, difference=difference, tolerance=tolerance)
