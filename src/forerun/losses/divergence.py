"""A weighted sum of losses that look at one position each, as a value: what the fused path computes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from typing import final

from forerun.errors import ForerunError
from forerun.losses._inputs import check_beta


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """A mixture of losses; each attribute is the weight of the eager loss of that name, 0 leaves it out.

        value = sum_i weight_i loss_i,   d value / d logits_j = draft_j M - m_j,   m = sum_i weight_i m_i,   M = sum(m)

    Every loss of a draft's softmax has a gradient of this form; m is its *pull*, the list below. So a mixture needs one
    tensor for the pull of all its terms, and one row sum.

    Attributes:
        cross_entropy: against the data token; m = onehot(label).
        soft_cross_entropy: -sum target~ log draft, the target renormalised as in `forward_kl`; m = target~.
        forward_kl: m = target~.
        total_variation: m = draft 1{draft < target}.
        lk_alpha: -log sum min(target, draft); m = draft 1{draft < target} / alpha.
        tvp: D_beta; m = 1{draft < target} target^(1-beta) draft^beta.
        beta: exponent of `tvp`, in [0, 1].

    Raises:
        ForerunError: a weight is negative or not finite, all are 0, or beta is outside [0, 1].

    Example:
        >>> Divergence(total_variation=0.9, forward_kl=0.1).needs_target
        True
        >>> Divergence(cross_entropy=1.0).needs_target
        False
    """

    cross_entropy: float = 0.0
    soft_cross_entropy: float = 0.0
    forward_kl: float = 0.0
    total_variation: float = 0.0
    lk_alpha: float = 0.0
    tvp: float = 0.0
    beta: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what is no loss."""
        check_beta(self.beta)
        weights = self.terms[:-1]
        if not all(0.0 <= weight < math.inf for weight in weights) or not any(weights):
            raise ForerunError(f"{self}: weights must be finite, not negative, and at least one above 0")

    @property
    def terms(self) -> tuple[float, ...]:
        """The attributes in their order: how the divergence passes through an operator of torch."""
        return astuple(self)

    @classmethod
    def of_terms(cls, terms: Sequence[float]) -> Divergence:
        """The inverse of `terms`."""
        return cls(**dict(zip((field.name for field in fields(cls)), terms, strict=True)))

    @property
    def needs_labels(self) -> bool:
        """Whether it looks at the data token."""
        return self.cross_entropy > 0

    @property
    def needs_target(self) -> bool:
        """Whether it looks at the target's law."""
        return any(self.terms[1:-1])
