"""End-to-end total variation: the share of a block that a draft would lose, prefixes multiplied out."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from forerun.losses._inputs import check_mask
from forerun.losses.objective import Blocks, Moment, Need, Objective, PositionWeights
from forerun.losses.total_variation import total_variation


def end_to_end_tv(
    target_log_probs: Float[Tensor, "*batch horizon vocab"],
    draft_logits: Float[Tensor, "*batch horizon vocab"],
    mask: Bool[Tensor, "*batch horizon"] | None = None,
) -> Float[Tensor, "*batch horizon"]:
    """Bebop's end-to-end TV, one value for each position of the block.

        L = 1 - 1/K sum_k prod_{i<=k} alpha_i = 1/K sum_k (1 - prod_{i<=k} alpha_i),   alpha = 1 - TV
        value at k = 1 - prod_{i<=k} alpha_i

    The mean over the positions of a block is the published loss. Position i is trained by every later value, in
    proportion to the prefix before it, so late positions fade while early ones are poor; `tvp` is additive instead.
    Note that the product of the alphas along target-written text is *not* the expected acceptance length (1.3125
    instead of 1.25 in the two-position example); see `expected_acceptance_length`.

    Pruned draft vocabulary: as in `total_variation`, the mass outside is never accepted.

    Limits: masked positions have value 0 and are left out of the product, as if they were not in the block. A position
    with alpha = 0 ends the product; the positions before it are trained as before.

    Args:
        target_log_probs: target rows, sum at most 1; detached.
        draft_logits: raw logits.
        mask: True where the position is valid; all positions when None.

    Returns:
        One value in [0, 1] per position.

    Raises:
        ForerunError: the shapes do not describe the same block.

    References:
        Bebop, arXiv 2606.12370, section 4.2.
    """
    mask = check_mask(mask, draft_logits)
    alphas = 1.0 - total_variation(target_log_probs, draft_logits)
    survival = torch.where(mask, alphas, 1.0).cumprod(-1)
    return torch.where(mask, 1.0 - survival, 0.0)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class EndToEndTV(Objective):
    """Bebop's end-to-end total variation."""

    title: ClassVar[str] = "end-to-end TV"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.TARGET_LAW})
    weights: ClassVar[PositionWeights] = "uniform"

    def values(self, blocks: Blocks, moment: Moment) -> Float[Tensor, "*batch horizon"]:
        """See `Objective`."""
        return end_to_end_tv(blocks.target_log_probs, blocks.draft_logits, blocks.mask)
