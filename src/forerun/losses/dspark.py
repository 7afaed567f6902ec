"""DSpark's training loss: cross-entropy, L1 distance, and the confidence head's own loss."""

from dataclasses import dataclass
from typing import ClassVar, final

from jaxtyping import Float, Int64
from torch import Tensor

from forerun.losses.acceptance import acceptance
from forerun.losses.confidence import confidence_loss
from forerun.losses.cross_entropy import cross_entropy
from forerun.losses.divergence import Divergence
from forerun.losses.objective import Blocks, Moment, Need, Objective, PositionWeights
from forerun.losses.total_variation import total_variation


def ce_l1(
    labels: Int64[Tensor, "*batch"],
    target_log_probs: Float[Tensor, "*batch vocab"],
    draft_logits: Float[Tensor, "*batch vocab"],
    *,
    ce_weight: float = 0.1,
    l1_weight: float = 0.9,
) -> Float[Tensor, "*batch"]:
    """The two terms of DSpark's loss that train the draft's law.

        ce_weight CE + l1_weight sum_v |draft(v) - target(v)| = ce_weight CE + 2 l1_weight TV

    The L1 distance is *twice* the total variation, so 0.1/0.9 is 0.1 CE + 1.8 TV; recipes that weigh TV itself with
    0.9 (`tv_ce`) train another mixture.

    Limits and pruned draft vocabulary: each part as in its own function; the mass outside is part of the L1 distance. A
    position whose data token is `OUTSIDE` has no cross-entropy.

    Args:
        labels: data tokens as indices into the draft vocabulary.
        target_log_probs: target rows, sum at most 1; detached.
        draft_logits: raw logits.
        ce_weight: of the cross-entropy.
        l1_weight: of the L1 distance.

    Returns:
        One value per position.

    Raises:
        ForerunError: the shapes differ.

    References:
        DSpark, arXiv 2607.05147, section 3.3; position weights `exp_weights`: e^(-(k-1)/gamma), gamma = 4 for K = 7 in
        the released configuration.
    """
    l1_distance = 2.0 * total_variation(target_log_probs, draft_logits)
    return ce_weight * cross_entropy(labels, draft_logits) + l1_weight * l1_distance


def dspark(
    labels: Int64[Tensor, "*batch"],
    target_log_probs: Float[Tensor, "*batch vocab"],
    draft_logits: Float[Tensor, "*batch vocab"],
    confidence_logits: Float[Tensor, "*batch"],
    *,
    confidence_weight: float = 1.0,
) -> Float[Tensor, "*batch"]:
    """All three terms of DSpark's loss: `0.1 CE + 0.9 L1 + confidence_weight BCE(c, 1 - TV)`.

    The confidence's label is detached: the third term trains the confidence head, never the law that it is a label of.

    Args:
        labels: data tokens as indices into the draft vocabulary.
        target_log_probs: target rows, sum at most 1; detached.
        draft_logits: raw logits.
        confidence_logits: log-odds of the confidence head.
        confidence_weight: of the third term.

    Returns:
        One value per position.

    Raises:
        ForerunError: the shapes differ.

    References:
        DSpark, arXiv 2607.05147, section 3.3 and the released configuration (0.1, 0.9, 1.0).
    """
    calibration = confidence_loss(confidence_logits, acceptance(target_log_probs, draft_logits))
    return ce_l1(labels, target_log_probs, draft_logits) + confidence_weight * calibration


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DSpark(Objective):
    """DSpark's two terms for the draft's law; the third trains the confidence head, which every run here does.

    Attributes:
        ce_weight: of the cross-entropy.
        l1_weight: of the L1 distance, twice the total variation.
    """

    title: ClassVar[str] = "DSpark"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.TARGET_LAW, Need.DATA_TOKEN})
    weights: ClassVar[PositionWeights] = "exp"

    ce_weight: float = 0.1
    l1_weight: float = 0.9

    def values(self, blocks: Blocks, moment: Moment) -> Float[Tensor, "*batch horizon"]:
        """See `Objective`."""
        return ce_l1(
            blocks.labels,
            blocks.target_log_probs,
            blocks.draft_logits,
            ce_weight=self.ce_weight,
            l1_weight=self.l1_weight,
        )

    def divergence(self, *, step: int, total_steps: int, settled: float) -> Divergence:
        """See `Objective`."""
        return Divergence(cross_entropy=self.ce_weight, total_variation=2.0 * self.l1_weight)
