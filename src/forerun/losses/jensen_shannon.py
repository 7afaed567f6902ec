"""Jensen-Shannon divergence between the target's law and the draft's."""

import math
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from jaxtyping import Float
from torch import Tensor

from forerun.losses._inputs import LOG_RATIO_FLOOR, aligned
from forerun.losses.draft_vocabulary import missing
from forerun.losses.objective import Blocks, Moment, Need, Objective


def jensen_shannon(
    target_log_probs: Float[Tensor, "*batch vocab"], draft_logits: Float[Tensor, "*batch vocab"]
) -> Float[Tensor, "*batch"]:
    """Jensen-Shannon divergence, in [0, log 2].

        JS = 1/2 KL(target || mixture) + 1/2 KL(draft || mixture),   mixture = (target + draft)/2
        d JS / d logits_j = 1/2 draft_j (log draft_j/mixture_j - KL(draft || mixture))

    Pruned draft vocabulary: outside it the mixture is half the target, so with rows that sum to s the mass outside
    contributes the constant (1 - s)/2 log 2, without gradient; inside, nothing is renormalised.

    Limits: `0 log 0 = 0` on both sides; laws without a common token give log 2 and no gradient; equal laws give 0. A
    token with draft probability 0 (logit `-inf`) has no gradient.

    Args:
        target_log_probs: target rows, sum at most 1; detached here.
        draft_logits: raw logits; the softmax is taken here, in float32 (float64 stays).

    Returns:
        One value per position, in nats.

    Raises:
        ForerunError: the shapes differ.

    References:
        Lin 1991, Divergence measures based on the Shannon entropy; for drafters: arXiv 2310.08461 (DistillSpec).
    """
    target_log_probs, draft_logits = aligned(target_log_probs, draft_logits)
    target_log_probs = target_log_probs.detach()  # stop-gradient: the target is the teacher
    target_probs = target_log_probs.exp()
    # Below twice the floor a probability is 0 in float32 and 1e-90 in float64; -inf would turn 0 * inf into NaN.
    floor = 2 * LOG_RATIO_FLOOR
    target_log_probs = target_log_probs.clamp(min=floor)
    draft_log_probs = torch.log_softmax(draft_logits, dim=-1).clamp(min=floor)
    log_mixture = torch.logaddexp(target_log_probs, draft_log_probs) - math.log(2.0)
    from_target = target_probs * (target_log_probs - log_mixture)
    from_draft = draft_log_probs.exp() * (draft_log_probs - log_mixture)
    outside = missing(target_probs.sum(-1)) * math.log(2.0)
    divergence = ((from_target + from_draft).sum(-1) + outside) / 2
    return divergence.clamp(min=0.0)  # rounding may leave a negative 1e-9 where the laws agree


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class JensenShannon(Objective):
    """Jensen-Shannon divergence."""

    title: ClassVar[str] = "Jensen-Shannon"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.TARGET_LAW})

    def values(self, blocks: Blocks, moment: Moment) -> Float[Tensor, "*batch horizon"]:
        """See `Objective`."""
        return jensen_shannon(blocks.target_log_probs, blocks.draft_logits)
