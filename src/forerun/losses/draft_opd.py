"""Draft-OPD: forward KL where the draft was accepted, reverse KL from its first rejection on."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from forerun.errors import ForerunError
from forerun.losses._inputs import check_mask
from forerun.losses.first_error import agreed_prefix
from forerun.losses.kullback_leibler import forward_kl, reverse_kl
from forerun.losses.objective import Blocks, Moment, Need, Objective, PositionWeights


def draft_opd(
    target_log_probs: Float[Tensor, "*batch horizon vocab"],
    draft_logits: Float[Tensor, "*batch horizon vocab"],
    accepted: Bool[Tensor, "*batch horizon"],
    mask: Bool[Tensor, "*batch horizon"] | None = None,
    *,
    decay: float = 0.8,
    accepted_weight: float = 1.0,
    rejected_weight: float = 1.0,
) -> Float[Tensor, "*batch horizon"]:
    """On-policy distillation, split at the first rejection of a drafted block.

        accepted position:               share_acc KL(target || draft)
        k-th position behind (k = 0..):  share_rej decay^k KL(draft || target)
        shares = weights / sum of weights

    It is meant for blocks that the *draft* wrote. The target's laws behind the first rejection have to be computed on
    the draft's own prefix (replayed): the verified ones are right only up to and including the first rejected position.
    The paper averages the two groups separately; `masked_sum` counts every position once, so the larger group weighs
    more. The gradient of each position is that of its divergence.

    Pruned draft vocabulary and limits: as in `forward_kl` and `reverse_kl`. Masked positions have value 0 and are not
    counted by k.

    Args:
        target_log_probs: target rows on the draft's prefix, sum at most 1; detached.
        draft_logits: raw logits.
        accepted: True for the accepted positions of each block.
        mask: True where the position is valid; all positions when None.
        decay: factor for each position behind the first rejection.
        accepted_weight: weight of the accepted group.
        rejected_weight: weight of the other.

    Returns:
        One value per position, in nats.

    Raises:
        ForerunError: the shapes do not describe the same block, or a weight or the decay is out of range.

    References:
        Draft-OPD, arXiv 2605.29343; decay 0.8 and weights 1, 1 as reported by others.
    """
    if not 0.0 < decay <= 1.0:
        raise ForerunError(f"decay is {decay}; give a factor in (0, 1]")
    if accepted_weight < 0 or rejected_weight < 0 or not accepted_weight + rejected_weight > 0:
        raise ForerunError(f"weights {accepted_weight}, {rejected_weight}; give two that are not negative, one above 0")
    mask = check_mask(mask, draft_logits)
    if accepted.shape != mask.shape:
        raise ForerunError(f"accepted {tuple(accepted.shape)} does not match the positions {tuple(mask.shape)}")
    total = accepted_weight + rejected_weight
    rejected = mask & ~accepted
    coverage = accepted_weight / total * forward_kl(target_log_probs, draft_logits)
    offsets = (rejected.long().cumsum(-1) - 1).clamp(min=0).to(coverage)
    precision = rejected_weight / total * decay**offsets * reverse_kl(target_log_probs, draft_logits)
    return torch.where(mask & accepted, coverage, torch.where(rejected, precision, 0.0))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DraftOPD(Objective):
    """Draft-OPD's split. On text that the draft did not write, `agreed_prefix` stands in for what was accepted.

    Attributes:
        decay: factor for each position behind the first rejection.
    """

    title: ClassVar[str] = "Draft-OPD"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.TARGET_LAW, Need.DRAFT_ROLLOUT})
    weights: ClassVar[PositionWeights] = "uniform"

    decay: float = 0.8

    def values(self, blocks: Blocks, moment: Moment) -> Float[Tensor, "*batch horizon"]:
        """See `Objective`."""
        accepted = blocks.accepted
        if accepted is None:
            accepted = agreed_prefix(blocks.labels, blocks.draft_logits, blocks.mask)
        return draft_opd(blocks.target_log_probs, blocks.draft_logits, accepted, blocks.mask, decay=self.decay)
