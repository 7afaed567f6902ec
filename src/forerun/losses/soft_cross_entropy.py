"""Cross-entropy against the target's whole law, as EAGLE-3 trains it."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from jaxtyping import Float
from torch import Tensor

from forerun.losses._inputs import aligned
from forerun.losses.divergence import Divergence
from forerun.losses.objective import Blocks, Moment, Need, Objective, PositionWeights


def soft_cross_entropy(
    target_log_probs: Float[Tensor, "*batch vocab"], draft_logits: Float[Tensor, "*batch vocab"]
) -> Float[Tensor, "*batch"]:
    """Expected negative log-likelihood of a target token under the draft.

        CE = -sum_v target~(v) log draft(v),   target~ = target / sum(target),   d CE / d logits = draft - target~

    It is the forward KL plus the target's entropy: another value, the same gradient.

    Pruned draft vocabulary: the target is renormalised inside it, as EAGLE-3 does; the mass outside contributes
    nothing. (EAGLE-3 also masks positions whose most probable token lies outside; that is the caller's mask.)

    Limits: a token that the target excludes contributes nothing. Where the draft excludes a token (logit `-inf`) that
    the target allows, the value is `+inf` with a finite gradient. A row without any target mass has value 0 and no
    gradient.

    Args:
        target_log_probs: target rows, sum at most 1; detached here.
        draft_logits: raw logits; the softmax is taken here, in float32 (float64 stays).

    Returns:
        One value per position, in nats.

    Raises:
        ForerunError: the shapes differ.

    References:
        EAGLE-3, arXiv 2503.01840: sum_i 0.8^i CE_i over the steps i = 0..6 of training-time test, and no feature loss;
        the weights are `geometric_weights(7, rate=0.8)`.
    """
    target_log_probs, draft_logits = aligned(target_log_probs, draft_logits)
    target_probs = target_log_probs.detach().exp()  # stop-gradient: the target is the teacher
    mass = target_probs.sum(-1, keepdim=True)
    target_probs = target_probs / torch.where(mass > 0, mass, 1.0)
    draft_log_probs = torch.log_softmax(draft_logits, dim=-1)
    return -torch.where(target_probs > 0, target_probs * draft_log_probs, 0.0).sum(-1)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SoftCrossEntropy(Objective):
    """EAGLE-3's objective: soft cross-entropy, decayed by 0.8 a step."""

    title: ClassVar[str] = "soft cross-entropy"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.TARGET_LAW})
    weights: ClassVar[PositionWeights] = "geometric"

    def values(self, blocks: Blocks, moment: Moment) -> Float[Tensor, "*batch horizon"]:
        """See `Objective`."""
        return soft_cross_entropy(blocks.target_log_probs, blocks.draft_logits)

    def divergence(self, *, step: int, total_steps: int, settled: float) -> Divergence:
        """See `Objective`."""
        return Divergence(soft_cross_entropy=1.0)
