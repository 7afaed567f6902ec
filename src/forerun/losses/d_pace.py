"""D-PACE: cross-entropy, each position weighted by the acceptance that it still decides."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from forerun.errors import ForerunError
from forerun.losses._inputs import check_mask, label_log_probs
from forerun.losses.cross_entropy import cross_entropy
from forerun.losses.objective import Blocks, Moment, Need, Objective, PositionWeights


def d_pace(
    labels: Int64[Tensor, "*batch horizon"],
    draft_logits: Float[Tensor, "*batch horizon vocab"],
    mask: Bool[Tensor, "*batch horizon"] | None = None,
    *,
    smoothing: float = 0.5,
) -> Float[Tensor, "*batch horizon"]:
    """Cross-entropy times a detached weight: the smoothed survival of every prefix that the position is part of.

        value at i = w_i CE_i,   w_i = stop_gradient( sum_{k>=i} prod_{j<=k} s_j )
        s_j = (1 - smoothing) draft(label_j) + smoothing

    The gradient is that of CE, times w_i. The published loss sums over the positions and divides by the number of
    *blocks*; `masked_sum(...).mean()` divides by the number of positions, which for whole blocks is K times as many.

    Pruned draft vocabulary: a data token that is `OUTSIDE` has draft probability 0 (s = smoothing) and no
    cross-entropy; take its position out of the count (`mask & (labels >= 0)` for the sum, not for this argument).

    Limits: masked positions have value 0, s = 1 and no part in the sums, as if they were not in the block.

    Args:
        labels: data tokens as indices into the draft vocabulary.
        draft_logits: raw logits; the softmax is taken here, in float32 (float64 stays).
        mask: True where the position is valid; all positions when None.
        smoothing: 0 is the plain product of label probabilities, 1 weighs position i with K - i + 1.

    Returns:
        One value per position, in weighted nats.

    Raises:
        ForerunError: the shapes do not describe the same block, or smoothing is outside [0, 1].

    References:
        D-PACE, arXiv 2605.18810, and its code: alpha = 0.5.
    """
    if not 0.0 <= smoothing <= 1.0:
        raise ForerunError(f"smoothing is {smoothing}; give a number in [0, 1]")
    mask = check_mask(mask, draft_logits)
    draft_probs = label_log_probs(labels, draft_logits.detach()).exp()  # stop-gradient: a weight
    smoothed = torch.where(mask, (1.0 - smoothing) * draft_probs + smoothing, 1.0)
    survival = torch.where(mask, smoothed.cumprod(-1), 0.0)
    weights = survival.flip(-1).cumsum(-1).flip(-1)
    return torch.where(mask, weights * cross_entropy(labels, draft_logits), 0.0)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DPace(Objective):
    """D-PACE; tokens outside the draft vocabulary end nothing and are not counted.

    Attributes:
        smoothing: of the survival that weighs a position.
    """

    title: ClassVar[str] = "D-PACE"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.DATA_TOKEN})
    weights: ClassVar[PositionWeights] = "uniform"

    smoothing: float = 0.5

    def values(self, blocks: Blocks, moment: Moment) -> Float[Tensor, "*batch horizon"]:
        """See `Objective`."""
        return d_pace(blocks.labels, blocks.draft_logits, blocks.mask, smoothing=self.smoothing)

    def kept(self, blocks: Blocks) -> Bool[Tensor, "*batch horizon"]:
        """Tokens that cannot be drafted have no cross-entropy; counting them would dilute the mean."""
        return blocks.labels >= 0
