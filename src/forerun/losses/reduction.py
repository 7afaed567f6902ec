"""The one reduction from values per position to a number: masked, weighted, over a count known to all pieces."""

from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from forerun.errors import ForerunError


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedSum:
    """A weighted sum over valid positions and how many there were. Pieces add; only the whole is divided.

    Attributes:
        total: sum of weight times value over the valid positions; carries the gradient. One number, or one for each
            place in the block.
        count: number of valid positions. Weights do not enter it.
    """

    total: Float[Tensor, "*places"]
    count: Int64[Tensor, "*places"]

    def __add__(self, other: "MaskedSum") -> "MaskedSum":
        """The sum over both pieces."""
        return MaskedSum(total=self.total + other.total, count=self.count + other.count)

    def mean(self) -> Float[Tensor, "*places"]:
        """Total over count. Where count is 0 it is 0 and means nothing: skip the step and say so."""
        return self.share(self.count)

    def share(self, global_count: Int64[Tensor, "*places"]) -> Float[Tensor, "*places"]:
        """This piece's part of the global mean: `total / global_count`.

        Shares (and their gradients) add up to the mean over the whole batch, however it was cut into micro-batches or
        processes. Count the masks of all pieces before the first backward pass. A data-parallel wrapper that averages
        gradients over N processes needs N times the share.

        Args:
            global_count: valid positions of the whole batch.
        """
        return self.total / global_count.clamp(min=1)


def masked_sum(
    values: Float[Tensor, "*batch"],
    mask: Bool[Tensor, "*batch"],
    weights: Float[Tensor, "*#batch"] | None = None,
    *,
    by_position: bool = False,
) -> MaskedSum:
    """Sum the values at valid positions, each times its weight.

    Objectives of a whole block come as one value per position too, so that they share this count: for whole blocks of K
    positions the mean over positions of D-PACE's values, say, is the published mean over blocks divided by K.

    Masked positions contribute neither value nor gradient nor count, whatever they hold (inf and NaN included).

    Args:
        values: one value per position.
        mask: True where the position is valid.
        weights: position weights that broadcast to `values`, e.g. (horizon,) against (blocks, horizon).
        by_position: keep the last axis: one sum and one count for each place in the block.

    Raises:
        ForerunError: mask and values differ in shape, or the weights do not broadcast to them.

    Example:
        >>> values = torch.tensor([[1.0, 1.0, 1.0], [5.0, 0.0, 0.0]])
        >>> masked_sum(values, torch.tensor([[True, True, True], [True, False, False]])).mean()
        tensor(2.)
    """
    if mask.shape != values.shape:
        raise ForerunError(f"mask {tuple(mask.shape)} and values {tuple(values.shape)} differ in shape")
    kept = torch.where(mask, values, 0.0)
    if weights is not None:
        try:
            weights = weights.to(values).expand(values.shape)
        except RuntimeError as error:
            raise ForerunError(
                f"weights {tuple(weights.shape)} do not broadcast to values {tuple(values.shape)}; positions come last"
            ) from error
        kept = kept * weights
    if by_position:
        horizon = values.shape[-1]
        return MaskedSum(total=kept.reshape(-1, horizon).sum(0), count=mask.reshape(-1, horizon).sum(0))
    return MaskedSum(total=kept.sum(), count=mask.sum())
