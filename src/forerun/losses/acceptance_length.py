"""Expected acceptance length (EAL): drafted tokens accepted per round, the correction or bonus token excluded."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from forerun.errors import ForerunError
from forerun.losses._inputs import check_beta, negligible, widened
from forerun.losses.position_weights import bound_weights


def expected_acceptance_length(
    acceptances: Float[Tensor, "*batch horizon"],
    token_acceptances: Float[Tensor, "*batch horizon"],
    mask: Bool[Tensor, "*batch horizon"] | None = None,
) -> Float[Tensor, "*batch"]:
    """Unbiased estimate of the expected acceptance length of a block, from one rollout of the target.

        EAL = E_{v ~ target} sum_k (prod_{i<k} rho_i) alpha_k,   rho_i = min(1, draft_i(v_i)/target_i(v_i))

    alpha_k is the mean of rho_k given the prefix, so the last factor is taken exactly and only the prefix is sampled.
    The cumulative product of the alphas is *not* this number: it forgets that a prefix that survives drafting is not
    distributed as the target's text (1.3125 instead of 1.25 in the two-position example of the tests).

    Limits: a block ends at its first masked position; nothing after it counts. A block masked whole has value 0.

    Args:
        acceptances: `acceptance` at each position of the block, along target-sampled text.
        token_acceptances: `token_acceptance` at the same positions.
        mask: True where the position is valid; all positions when None.

    Returns:
        One value in [0, horizon] per block: tokens. The round emits one more.

    Raises:
        ForerunError: the shapes differ.

    References:
        EAL = E_{v ~ target} sum_k prod_{i<=k} rho_i, the TVP paper's starting point.
    """
    if acceptances.shape != token_acceptances.shape or (mask is not None and mask.shape != acceptances.shape):
        raise ForerunError(
            f"acceptances {tuple(acceptances.shape)}, token_acceptances {tuple(token_acceptances.shape)} and mask "
            f"{None if mask is None else tuple(mask.shape)} must have one shape, positions last"
        )
    acceptances, token_acceptances = widened(acceptances), widened(token_acceptances)
    if mask is not None:
        acceptances = torch.where(mask, acceptances, 0.0)
        token_acceptances = torch.where(mask, token_acceptances, 0.0)
    survived = token_acceptances.cumprod(-1)
    prefix_survived = torch.cat([torch.ones_like(survived[..., :1]), survived[..., :-1]], dim=-1)
    return (prefix_survived * acceptances).sum(-1)


def acceptance_length_bound(
    mean_divergences: Float[Tensor, "*batch horizon"], *, beta: float
) -> Float[Tensor, "*batch"]:
    """Lower bound on the expected acceptance length from D_beta at each position of the block.

        EAL >= K [1 - beta sum_h w_h D_beta(h)]_+^(1/beta),   EAL >= K e^(-sum_h w_h D_0(h)) at beta 0,
        w_h = (K - h + 1)/K  (they sum to (K+1)/2: this is the constant C of a weighted *mean*)

    The bound comes from Jensen's inequality over contexts, so average D_beta over the data *first* and call this once;
    the mean of per-block bounds is larger and proves nothing.

    Limits: where the bracket is not positive the bound is 0.

    Args:
        mean_divergences: mean over target-sampled data of `tvp` at positions 1..K.
        beta: the exponent those divergences were computed with.

    Returns:
        Tokens, in [0, K].

    Raises:
        ForerunError: beta is outside [0, 1], or there is no position.

    References:
        The TVP paper: EAL/K >= [1 - beta C L]_+^(1/beta).
    """
    check_beta(beta)
    mean_divergences = widened(mean_divergences)
    horizon = mean_divergences.shape[-1]
    loss = (bound_weights(horizon).to(mean_divergences) * mean_divergences).sum(-1)
    if negligible(beta, loss.dtype):
        return horizon * torch.exp(-loss)
    return horizon * torch.exp(torch.log1p(-(beta * loss).clamp(max=1.0)) / beta)
