"""Kullback-Leibler divergence between the target's law and the draft's, in both directions."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from jaxtyping import Float
from torch import Tensor

from forerun.losses._inputs import LOG_RATIO_FLOOR, aligned
from forerun.losses.divergence import Divergence
from forerun.losses.objective import Blocks, Moment, Need, Objective


def forward_kl(
    target_log_probs: Float[Tensor, "*batch vocab"], draft_logits: Float[Tensor, "*batch vocab"]
) -> Float[Tensor, "*batch"]:
    """Forward KL divergence, the target's law renormalised on the tokens given.

        KL = sum_v target~(v) (log target~(v) - log draft(v)),   target~ = target / sum(target)
        d KL / d logits = draft - target~

    Pruned draft vocabulary: the divergence from a law that reaches outside it is infinite, so the target is
    renormalised inside it, as the LK paper does for truncated vocabularies. The mass outside contributes nothing, and
    this loss, unlike TV and D_beta, does not see what pruning costs. Complete rows are unchanged.

    Limits: `0 log 0 = 0`. Where the draft excludes a token (logit `-inf`) that the target allows, the value is `+inf`;
    the gradient keeps its formula and is finite. A position whose whole target mass lies outside the draft vocabulary
    has value 0 and no gradient.

    Args:
        target_log_probs: target rows, sum at most 1; detached here.
        draft_logits: raw logits; the softmax is taken here, in float32 (float64 stays).

    Returns:
        One value per position, in nats.

    Raises:
        ForerunError: the shapes differ.

    References:
        LK losses, arXiv 2602.23881, sections 4 and 5 (truncated vocabulary).
    """
    target_log_probs, draft_logits = aligned(target_log_probs, draft_logits)
    target_log_probs = target_log_probs.detach()  # stop-gradient: the target is the teacher
    log_mass = torch.logsumexp(target_log_probs, dim=-1, keepdim=True)
    target_log_probs = target_log_probs - torch.where(log_mass.isneginf(), 0.0, log_mass)
    target_probs = target_log_probs.exp()
    draft_log_probs = torch.log_softmax(draft_logits, dim=-1)
    terms = target_probs * (target_log_probs - draft_log_probs)
    return torch.where(target_probs > 0, terms, 0.0).sum(-1)


def reverse_kl(
    target_log_probs: Float[Tensor, "*batch vocab"], draft_logits: Float[Tensor, "*batch vocab"]
) -> Float[Tensor, "*batch"]:
    """Reverse KL divergence: what the draft says is judged by the target, what it omits is not.

        KL = sum_v draft(v) (log draft(v) - log target(v))
        d KL / d logits_j = draft_j (log draft_j - log target_j - KL)

    Pruned draft vocabulary: the draft says nothing outside it, so the target is *not* renormalised; with rows that sum
    to s the mass outside contributes the constant -log s, without gradient.

    Limits: `0 log 0 = 0`: a token with draft probability 0 (logit `-inf`) has no value and no gradient. target(v) = 0
    would be infinite for every draft with a softmax; log target counts as at least `LOG_RATIO_FLOOR` (-103.28 nats), so
    value and gradient are finite and push that token down.

    Args:
        target_log_probs: target rows, sum at most 1; detached here.
        draft_logits: raw logits; the softmax is taken here, in float32 (float64 stays).

    Returns:
        One value per position, in nats.

    Raises:
        ForerunError: the shapes differ.

    References:
        As a distillation loss of drafters: arXiv 2310.08461 (DistillSpec); compared in arXiv 2606.12370 (Bebop).
    """
    target_log_probs, draft_logits = aligned(target_log_probs, draft_logits)
    target_log_probs = target_log_probs.detach()  # stop-gradient: the target is the teacher
    draft_log_probs = torch.log_softmax(draft_logits, dim=-1)
    # Below twice the floor a probability is 0 in float32 and 1e-90 in float64; -inf would turn 0 * inf into NaN.
    draft_log_probs = draft_log_probs.clamp(min=2 * LOG_RATIO_FLOOR)
    terms = draft_log_probs.exp() * (draft_log_probs - target_log_probs.clamp(min=LOG_RATIO_FLOOR))
    return terms.sum(-1).clamp(min=0.0)  # rounding may leave a negative 1e-9 where the laws agree


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardKL(Objective):
    """Forward Kullback-Leibler divergence on the renormalised draft vocabulary."""

    title: ClassVar[str] = "forward KL"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.TARGET_LAW})

    def values(self, blocks: Blocks, moment: Moment) -> Float[Tensor, "*batch horizon"]:
        """See `Objective`."""
        return forward_kl(blocks.target_log_probs, blocks.draft_logits)

    def divergence(self, *, step: int, total_steps: int, settled: float) -> Divergence:
        """See `Objective`."""
        return Divergence(forward_kl=1.0)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ReverseKL(Objective):
    """Reverse Kullback-Leibler divergence."""

    title: ClassVar[str] = "reverse KL"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.TARGET_LAW})

    def values(self, blocks: Blocks, moment: Moment) -> Float[Tensor, "*batch horizon"]:
        """See `Objective`."""
        return reverse_kl(blocks.target_log_probs, blocks.draft_logits)
