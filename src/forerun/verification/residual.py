"""The law of the token that replaces a rejected draft token."""

from jaxtyping import Float64
from torch import Tensor

from forerun.distributions import DenseLaw, Law, PointLaw


def residual_law(target: Law, draft: Law, *, target_weight: float = 1.0) -> Law:
    """The part of the target that the draft does not cover: ``(target_weight * target - draft)_+`` over its sum.

    Where the draft covers the target, for weight 1 that is where the two laws are equal, the residual is empty. A
    rejection then has probability zero; the answer is defined to be the target law itself.

    Args:
        target: One row.
        draft: One row, same vocabulary.
        target_weight: Share of the target that is still to be covered; below 1 only in block verification.

    Returns:
        One row; a ``PointLaw`` whenever the target is one.

    References:
        Leviathan et al. 2023, arXiv:2211.17192, Section 2.3; Chen et al. 2023, arXiv:2302.01318, Algorithm 2; with a
        weight Sun et al. 2024, arXiv:2403.10444, Algorithm 2.
    """
    if isinstance(target, PointLaw):
        return target  # its only token is left over, or nothing is
    excess = (target_weight * target.dense() - draft.dense()).clamp(min=0.0)
    total = excess.sum(-1, keepdim=True)
    if not bool(total > 0.0):
        return target
    return DenseLaw(excess / total)


def uncovered_mass(target: Law, draft: Law, target_weights: Float64[Tensor, " rows"]) -> Float64[Tensor, " rows"]:
    """How much of the target the draft does not cover, row by row: ``sum_v (weight * target(v) - draft(v))_+``.

    Args:
        target: The rows to cover.
        draft: As many rows, same vocabulary.
        target_weights: One factor in [0, 1] for each row of the target.
    """
    if isinstance(target, PointLaw):
        return (target_weights - draft.prob_of(target.token_ids)).clamp(min=0.0)
    if isinstance(draft, PointLaw):
        return target_weights * (1.0 - target.prob_of(draft.token_ids))
    return (target_weights[:, None] * target.dense() - draft.dense()).clamp(min=0.0).sum(-1)
