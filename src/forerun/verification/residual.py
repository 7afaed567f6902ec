"""The law of the token that replaces a rejected draft token."""

from forerun.distributions import DenseLaw, Law, PointLaw


def residual_law(target: Law, draft: Law) -> Law:
    """The part of the target that the draft does not cover: ``(target - draft)_+`` divided by its sum.

    Where the draft covers the target, that is where the two laws are equal, the residual is empty. A rejection then
    has probability zero; the answer is defined to be the target law itself.

    Args:
        target: One row.
        draft: One row, same vocabulary.

    Returns:
        One row; a ``PointLaw`` whenever the target is one.

    References:
        Leviathan et al. 2023, arXiv:2211.17192, Section 2.3; Chen et al. 2023, arXiv:2302.01318, Algorithm 2.
    """
    if isinstance(target, PointLaw):
        return target  # its only token is left over, or nothing is
    excess = (target.dense() - draft.dense()).clamp(min=0.0)
    total = excess.sum(-1, keepdim=True)
    if not bool(total > 0.0):
        return target
    return DenseLaw(excess / total)
