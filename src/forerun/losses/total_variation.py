"""Total variation between the target's law and the draft's: the probability that a drafted token is rejected."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from jaxtyping import Float
from torch import Tensor

from forerun.losses._inputs import aligned
from forerun.losses.divergence import Divergence
from forerun.losses.draft_vocabulary import missing
from forerun.losses.objective import Blocks, Moment, Need, Objective


def total_variation(
    target_log_probs: Float[Tensor, "*batch vocab"], draft_logits: Float[Tensor, "*batch vocab"]
) -> Float[Tensor, "*batch"]:
    """Total variation, in [0, 1] (half the L1 distance; papers that train "L1" train twice this).

        TV = 1 - sum_v min(target(v), draft(v)) = sum_v (target(v) - draft(v))_+ + outside
        d TV / d logits_j = draft_j M - m_j,   m = draft 1{draft < target},   M = sum(m)

    The second form is computed: it does not cancel when the laws are close, and equal laws give exactly 0.

    Pruned draft vocabulary: with target rows that sum to s <= 1 the overlap is unchanged (the draft has nothing
    outside), so the mass outside is never accepted and contributes `outside = 1 - s`, a constant without gradient.

    Limits: where the laws agree on a token its gradient coefficient is 0 (the kink is at equality).

    Args:
        target_log_probs: target rows, sum at most 1; detached here.
        draft_logits: raw logits; the softmax is taken here, in float32 (float64 stays).

    Returns:
        One value per position.

    Raises:
        ForerunError: the shapes differ.

    References:
        Speculative sampling accepts with probability 1 - TV: arXiv 2211.17192. As a loss: arXiv 2606.12370 (Bebop).
    """
    target_log_probs, draft_logits = aligned(target_log_probs, draft_logits)
    target_log_probs = target_log_probs.detach()  # stop-gradient: the target is the teacher
    target_probs, draft_probs = target_log_probs.exp(), torch.softmax(draft_logits, dim=-1)
    return (target_probs - draft_probs).relu().sum(-1) + missing(target_probs.sum(-1))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TotalVariation(Objective):
    """Total variation from the first step."""

    title: ClassVar[str] = "TV"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.TARGET_LAW})

    def values(self, blocks: Blocks, moment: Moment) -> Float[Tensor, "*batch horizon"]:
        """See `Objective`."""
        return total_variation(blocks.target_log_probs, blocks.draft_logits)

    def divergence(self, *, step: int, total_steps: int, settled: float) -> Divergence:
        """See `Objective`."""
        return Divergence(total_variation=1.0)
