"""How much two laws share."""

import torch
from jaxtyping import Float64
from torch import Tensor

from forerun.distributions.law import Law, PointLaw


def overlap(target: Law, draft: Law) -> Float64[Tensor, " rows"]:
    """Shared mass, row by row: ``sum_v min(target(v), draft(v)) = 1 - TV(target, draft)``.

    It is the probability that a token drawn from ``draft`` passes the token-level test (Leviathan et al. 2023,
    arXiv:2211.17192, Theorem 3.5). Symmetric; 1 for equal laws; clipped to at most 1 against rounding.
    Both laws must have the same number of rows and tokens.
    """
    if isinstance(target, PointLaw):
        return draft.prob_of(target.token_ids)
    if isinstance(draft, PointLaw):
        return target.prob_of(draft.token_ids)
    return torch.minimum(target.dense(), draft.dense()).sum(-1).clamp(max=1.0)


def total_variation(target: Law, draft: Law) -> Float64[Tensor, " rows"]:
    """Total variation distance, row by row: ``1 - overlap``, in [0, 1]."""
    return 1.0 - overlap(target, draft)
