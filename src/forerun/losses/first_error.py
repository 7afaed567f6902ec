"""Where a draft first goes wrong: greedy agreement with the data along a block, never differentiated."""

from dataclasses import dataclass
from typing import ClassVar, final

from jaxtyping import Bool, Float, Int64
from torch import Tensor

from forerun.losses._inputs import check_labels, check_mask
from forerun.losses.cross_entropy import cross_entropy
from forerun.losses.objective import Blocks, Moment, Need, Objective, PositionWeights


def agreed_prefix(
    labels: Int64[Tensor, "*batch horizon"],
    draft_logits: Float[Tensor, "*batch horizon vocab"],
    mask: Bool[Tensor, "*batch horizon"] | None = None,
) -> Bool[Tensor, "*batch horizon"]:
    """Positions of the leading run in which the draft's most probable token is the data token.

    Its length, averaged over blocks, is the *mean accepted prefix*: what greedy drafting would get accepted on this
    text. On text that the target wrote greedily it is the greedy acceptance length.

    Limits: the first of several equally likely tokens counts. A label that is `OUTSIDE` is never agreed with. Masked
    positions are False; the run goes on behind them.

    Args:
        labels: data tokens as indices into the draft vocabulary.
        draft_logits: raw logits.
        mask: True where the position is valid; all positions when None.

    Raises:
        ForerunError: the shapes do not describe the same block.
    """
    check_labels(labels, draft_logits)
    mask = check_mask(mask, draft_logits)
    agreed = draft_logits.argmax(-1) == labels
    return (agreed | ~mask).long().cumprod(-1).bool() & mask


def first_error(
    labels: Int64[Tensor, "*batch horizon"],
    draft_logits: Float[Tensor, "*batch horizon vocab"],
    mask: Bool[Tensor, "*batch horizon"] | None = None,
) -> Bool[Tensor, "*batch horizon"]:
    """The one valid position behind the agreed prefix: True once in a block, nowhere if all positions agree.

    Args:
        labels: data tokens as indices into the draft vocabulary.
        draft_logits: raw logits.
        mask: True where the position is valid; all positions when None.

    Raises:
        ForerunError: the shapes do not describe the same block.
    """
    mask = check_mask(mask, draft_logits)
    behind = mask & ~agreed_prefix(labels, draft_logits, mask)
    return behind & (behind.long().cumsum(-1) == 1)


def until_first_error(
    labels: Int64[Tensor, "*batch horizon"],
    draft_logits: Float[Tensor, "*batch horizon vocab"],
    mask: Bool[Tensor, "*batch horizon"] | None = None,
) -> Bool[Tensor, "*batch horizon"]:
    """Spec-AUF's kept set {1..j*}: positions up to and including the first error; all valid ones without an error.

    The objective is `cross_entropy` averaged over this set: it replaces the mask, and so the count, of `masked_sum`.

    Args:
        labels: data tokens as indices into the draft vocabulary.
        draft_logits: raw logits.
        mask: True where the position is valid; all positions when None.

    Raises:
        ForerunError: the shapes do not describe the same block.

    References:
        Spec-AUF, arXiv 2607.01893: j* is the first position whose argmax differs from the data token; it is kept, and
        the mask is detached. No decay is needed with it.
    """
    return agreed_prefix(labels, draft_logits, mask) | first_error(labels, draft_logits, mask)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SpecAUF(Objective):
    """Spec-AUF: cross-entropy up to and including the draft's first error."""

    title: ClassVar[str] = "Spec-AUF"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.DATA_TOKEN})
    weights: ClassVar[PositionWeights] = "uniform"

    def values(self, blocks: Blocks, moment: Moment) -> Float[Tensor, "*batch horizon"]:
        """See `Objective`."""
        return cross_entropy(blocks.labels, blocks.draft_logits)

    def kept(self, blocks: Blocks) -> Bool[Tensor, "*batch horizon"]:
        """The leading run that the draft gets right, and its first error if that token can be drafted at all."""
        return until_first_error(blocks.labels, blocks.draft_logits, blocks.mask) & (blocks.labels >= 0)
