"""Total variation with a share of a likelihood objective, the mixtures that published recipes train."""

from dataclasses import dataclass
from typing import ClassVar, final

from jaxtyping import Float, Int64
from torch import Tensor

from forerun.errors import ForerunError
from forerun.losses.cross_entropy import cross_entropy
from forerun.losses.divergence import Divergence
from forerun.losses.kullback_leibler import forward_kl
from forerun.losses.objective import Blocks, Moment, Need, Objective
from forerun.losses.total_variation import total_variation


def tv_kl(
    target_log_probs: Float[Tensor, "*batch vocab"],
    draft_logits: Float[Tensor, "*batch vocab"],
    *,
    tv_share: float = 0.9,
) -> Float[Tensor, "*batch"]:
    """Total variation with some forward KL: `tv_share TV + (1 - tv_share) KL`.

    The gradient is the same mixture of the two gradients. Limits and pruned draft vocabulary: each part as in its own
    function, so TV counts the mass outside and KL renormalises inside.

    Args:
        target_log_probs: target rows, sum at most 1; detached.
        draft_logits: raw logits.
        tv_share: share of TV; at 1 use `total_variation` itself.

    Returns:
        One value per position.

    Raises:
        ForerunError: the shapes differ, or the share is outside [0, 1).

    References:
        The TVP paper's TV+KL: 90 % and 10 %; in pre-training within noise of LK (+2.8 % over TV).
    """
    _check_share(tv_share)
    divergence = forward_kl(target_log_probs, draft_logits)
    return tv_share * total_variation(target_log_probs, draft_logits) + (1.0 - tv_share) * divergence


def tv_ce(
    labels: Int64[Tensor, "*batch"],
    target_log_probs: Float[Tensor, "*batch vocab"],
    draft_logits: Float[Tensor, "*batch vocab"],
    *,
    tv_share: float = 0.9,
) -> Float[Tensor, "*batch"]:
    """Total variation with some cross-entropy against the data token: `tv_share TV + (1 - tv_share) CE`.

    DSpark's published 0.9/0.1 weighs the *L1 distance*, which is twice the total variation: see `dspark`.

    Limits and pruned draft vocabulary: each part as in its own function. A position whose data token is `OUTSIDE` has
    no cross-entropy; its TV still counts.

    Args:
        labels: data tokens as indices into the draft vocabulary.
        target_log_probs: target rows, sum at most 1; detached.
        draft_logits: raw logits.
        tv_share: share of TV; at 1 use `total_variation` itself.

    Returns:
        One value per position.

    Raises:
        ForerunError: the shapes differ, or the share is outside [0, 1).

    References:
        The TVP paper's TV+CE; the weights {"ce": 0.1, "tv": 0.9} of vLLM's speculators.
    """
    _check_share(tv_share)
    likelihood = cross_entropy(labels, draft_logits)
    return tv_share * total_variation(target_log_probs, draft_logits) + (1.0 - tv_share) * likelihood


def _check_share(tv_share: float) -> None:
    if not 0.0 <= tv_share < 1.0:  # at 1 an infinite likelihood would be multiplied by 0
        raise ForerunError(f"tv_share is {tv_share}; give the share of total variation in [0, 1)")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TVPlusKL(Objective):
    """Total variation with some forward KL.

    Attributes:
        tv_share: share of TV.
    """

    title: ClassVar[str] = "TV + KL"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.TARGET_LAW})

    tv_share: float = 0.9

    def values(self, blocks: Blocks, moment: Moment) -> Float[Tensor, "*batch horizon"]:
        """See `Objective`."""
        return tv_kl(blocks.target_log_probs, blocks.draft_logits, tv_share=self.tv_share)

    def divergence(self, *, step: int, total_steps: int, settled: float) -> Divergence:
        """See `Objective`."""
        return Divergence(total_variation=self.tv_share, forward_kl=1.0 - self.tv_share)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TVPlusCE(Objective):
    """Total variation with some cross-entropy; a token that cannot be drafted still has its TV.

    Attributes:
        tv_share: share of TV.
    """

    title: ClassVar[str] = "TV + CE"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.TARGET_LAW, Need.DATA_TOKEN})

    tv_share: float = 0.9

    def values(self, blocks: Blocks, moment: Moment) -> Float[Tensor, "*batch horizon"]:
        """See `Objective`."""
        return tv_ce(blocks.labels, blocks.target_log_probs, blocks.draft_logits, tv_share=self.tv_share)

    def divergence(self, *, step: int, total_steps: int, settled: float) -> Divergence:
        """See `Objective`."""
        return Divergence(total_variation=self.tv_share, cross_entropy=1.0 - self.tv_share)
