"""Block verification on target-written text: the training objective and the expected number of accepted tokens."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from forerun.losses._inputs import aligned, check_labels, check_mask
from forerun.losses.acceptance import token_log_ratio
from forerun.losses.objective import Blocks, Moment, Need, Objective, PositionWeights


def block_verification(
    labels: Int64[Tensor, "*batch horizon"],
    target_log_probs: Float[Tensor, "*batch horizon vocab"],
    draft_logits: Float[Tensor, "*batch horizon vocab"],
    mask: Bool[Tensor, "*batch horizon"] | None = None,
) -> Float[Tensor, "*batch horizon"]:
    """The BV objective: what block verification rejects, one value for each position of a target rollout.

        EAL_block = E_{v ~ target} sum_k min(1, min_{j<=k} R_j),   R_j = prod_{l<=j} draft(v_l)/target(v_l)
        value at k = 1 - min(1, min_{j<=k} R_j)

    The mean over the positions of a block is 1 - EAL_block/K in expectation. It needs no full law of the draft: one
    sample per position. Gradient: where the minimum is attained at j* with R_j* < 1,

        d value / d logits_l = -R_j* (onehot(v_l) - draft_l)   for l <= j*, and 0 behind it or where no R is below 1.

    Pruned draft vocabulary: a data token that is `OUTSIDE` has draft probability 0, so nothing from it on is accepted;
    the target rows are only read at the labels and need no renormalisation.

    Limits: masked positions have value 0 and are left out of the product, as if they were not in the block. R = 0 has
    no gradient. A data token to which the target gives probability 0 cannot come from it; its ratio is taken as 1.

    Args:
        labels: data tokens, sampled from these target laws, as indices into the draft vocabulary.
        target_log_probs: target rows, sum at most 1; detached here.
        draft_logits: raw logits.
        mask: True where the position is valid; all positions when None.

    Returns:
        One value in [0, 1] per position.

    Raises:
        ForerunError: the shapes do not describe the same block.

    References:
        The verifier: Block verification, arXiv 2403.10444. The TVP paper's BV baseline; no publication of the
        objective was found, so the identity above is derived, and enumerated in the tests for K = 1..4.
    """
    mask = check_mask(mask, draft_logits)
    log_products = _log_products(labels, target_log_probs, draft_logits, mask)
    survival = log_products.cummin(-1).values.clamp(max=0.0).exp()
    return torch.where(mask, 1.0 - survival, 0.0)


@torch.no_grad()
def block_acceptance_length(
    labels: Int64[Tensor, "*batch horizon"],
    target_log_probs: Float[Tensor, "*batch horizon vocab"],
    draft_logits: Float[Tensor, "*batch horizon vocab"],
    mask: Bool[Tensor, "*batch horizon"] | None = None,
) -> Float[Tensor, "*batch"]:
    """Unbiased estimate of the tokens that block verification accepts, from one rollout of the target.

        EAL_block = E_{v ~ target} sum_k sum_x min(m_{k-1} target_k(x), R_{k-1} draft_k(x))
        R_j = prod_{l<=j} draft(v_l)/target(v_l),   m_k = min(1, min_{j<=k} R_j)

    The block-verification twin of `expected_acceptance_length`: only the prefix is sampled, the last token is summed
    over the vocabulary. Its expectation is never below the token-level one (11/9 against 10/9 in the paper's example).

    Limits: a block ends at its first masked position; nothing after it counts. A block masked whole has value 0.

    Args:
        labels: data tokens, sampled from these target laws, as indices into the draft vocabulary.
        target_log_probs: target rows, sum at most 1, not renormalised: mass outside is never accepted.
        draft_logits: raw logits; the softmax is taken here, in float32 (float64 stays).
        mask: True where the position is valid; all positions when None.

    Returns:
        One value in [0, horizon] per block: tokens, without gradient. The round emits one more.

    Raises:
        ForerunError: the shapes do not describe the same block.

    References:
        Block verification, arXiv 2403.10444, Theorem 2 and its example.
    """
    mask = check_mask(mask, draft_logits).long().cumprod(-1).bool()
    target_log_probs, draft_logits = aligned(target_log_probs, draft_logits)
    log_products = _log_products(labels, target_log_probs, draft_logits, mask)
    start = torch.zeros_like(log_products[..., :1])
    before = torch.cat([start, log_products[..., :-1]], dim=-1).unsqueeze(-1)  # (*batch, horizon, 1)
    log_survival = before.cummin(-2).values.clamp(max=0.0)
    draft_log_probs = torch.log_softmax(draft_logits, dim=-1)
    accepted = torch.minimum(log_survival + target_log_probs, before + draft_log_probs).exp().sum(-1)
    return torch.where(mask, accepted, 0.0).sum(-1)


def _log_products(
    labels: Int64[Tensor, "*batch horizon"],
    target_log_probs: Float[Tensor, "*batch horizon vocab"],
    draft_logits: Float[Tensor, "*batch horizon vocab"],
    mask: Bool[Tensor, "*batch horizon"],
) -> Float[Tensor, "*batch horizon"]:
    """The logarithms of R_j; a masked position multiplies by 1."""
    target_log_probs, draft_logits = aligned(target_log_probs, draft_logits)
    check_labels(labels, draft_logits)
    log_ratio = token_log_ratio(labels, target_log_probs.detach(), draft_logits)  # stop-gradient: the teacher
    return torch.where(mask, log_ratio, 0.0).cumsum(-1)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BlockVerification(Objective):
    """What block verification rejects, on text that the target sampled."""

    title: ClassVar[str] = "BV"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.TARGET_LAW, Need.TARGET_ROLLOUT})
    weights: ClassVar[PositionWeights] = "uniform"

    def values(self, blocks: Blocks, moment: Moment) -> Float[Tensor, "*batch horizon"]:
        """See `Objective`."""
        return block_verification(blocks.labels, blocks.target_log_probs, blocks.draft_logits, blocks.mask)
