"""The terms that teach a parallel drafter to be right from left to right."""

import math
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from forerun.errors import ForerunError
from forerun.losses._inputs import check_mask, label_log_probs
from forerun.losses.cross_entropy import cross_entropy
from forerun.losses.first_error import first_error
from forerun.losses.objective import Blocks, Moment, Need, Objective, PositionWeights


def chain_likelihood(
    labels: Int64[Tensor, "*batch horizon"],
    draft_logits: Float[Tensor, "*batch horizon vocab"],
    mask: Bool[Tensor, "*batch horizon"] | None = None,
) -> Float[Tensor, "*batch horizon"]:
    """Probability that the draft says the data's first k tokens: `prod_{j<=k} draft(label_j)`.

    Its gradient reaches all positions up to k: `d / d logits_j = value (onehot(label_j) - draft_j)`.

    Limits: masked positions have value 0 and are left out of the product. A label that is `OUTSIDE` has probability 0,
    and so has everything from it on; neither has a gradient.

    Args:
        labels: data tokens as indices into the draft vocabulary.
        draft_logits: raw logits; the softmax is taken here, in float32 (float64 stays).
        mask: True where the position is valid; all positions when None.

    Returns:
        One value in [0, 1] per position.

    Raises:
        ForerunError: the shapes do not describe the same block.
    """
    mask = check_mask(mask, draft_logits)
    log_likelihood = label_log_probs(labels, draft_logits)
    return torch.where(mask, torch.where(mask, log_likelihood, 0.0).cumsum(-1).exp(), 0.0)


def left_to_right(
    labels: Int64[Tensor, "*batch horizon"],
    draft_logits: Float[Tensor, "*batch horizon vocab"],
    mask: Bool[Tensor, "*batch horizon"] | None = None,
    *,
    gamma: float = 10.0,
    focal: float = 0.3,
    chain: float = 40.0,
) -> Float[Tensor, "*batch horizon"]:
    """Decayed cross-entropy, more of it at the first error, and the likelihood of the whole chain.

        value at k = e^(-(k-1)/gamma) CE_k + focal 1{k = first error} CE_k + chain (1 - prod_{j<=k} draft(label_j))

    The published chain term is -chain times the mean of the products; the 1 is a constant that keeps the value above 0.
    The first error is where the draft's most probable token is not the data token, found without gradient.

    Pruned draft vocabulary: a position whose data token is `OUTSIDE` has no cross-entropy, counts as an error, and ends
    the chain.

    Limits: masked positions have value 0 and are left out of chain and search; the decay counts places in the block.

    Args:
        labels: data tokens as indices into the draft vocabulary.
        draft_logits: raw logits; the softmax is taken here, in float32 (float64 stays).
        mask: True where the position is valid; all positions when None.
        gamma: decay length in positions.
        focal: additional weight of the first error.
        chain: weight of the chain term.

    Returns:
        One value per position.

    Raises:
        ForerunError: the shapes do not describe the same block, or gamma is not positive and finite.

    References:
        Teaching Diffusion to Speculate Left-to-Right, arXiv 2606.11552; gamma = 10, focal = 0.3 and chain = 40 as
        reported by others. The paper writes e^(-gamma k); with gamma = 10 only a decay *length* leaves any weight
        behind the first position, so it is read as one. How the three terms are scaled against each other (sum or mean
        over the block) is not known; here all are values of a position.
    """
    if not 0.0 < gamma < math.inf:
        raise ForerunError(f"gamma is {gamma}; give a positive decay length in positions")
    mask = check_mask(mask, draft_logits)
    likelihood = cross_entropy(labels, draft_logits)
    decay = torch.exp(-torch.arange(mask.shape[-1], device=mask.device).to(likelihood) / gamma)
    weights = decay + focal * first_error(labels, draft_logits, mask).to(decay)
    values = weights * likelihood + chain * (1.0 - chain_likelihood(labels, draft_logits, mask))
    return torch.where(mask, values, 0.0)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LeftToRight(Objective):
    """The left-to-right terms; tokens outside the draft vocabulary have only their chain term.

    Attributes:
        gamma: decay length in positions.
        focal: additional weight of the first error.
        chain: weight of the chain term.
    """

    title: ClassVar[str] = "L2R"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.DATA_TOKEN})
    weights: ClassVar[PositionWeights] = "uniform"

    gamma: float = 10.0
    focal: float = 0.3
    chain: float = 40.0

    def values(self, blocks: Blocks, moment: Moment) -> Float[Tensor, "*batch horizon"]:
        """See `Objective`."""
        return left_to_right(
            blocks.labels,
            blocks.draft_logits,
            blocks.mask,
            gamma=self.gamma,
            focal=self.focal,
            chain=self.chain,
        )
