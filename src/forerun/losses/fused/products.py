"""Matrix products between hidden states and heads, in the working precision whatever the head is stored in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor

_LONGEST_SUM: Final = 16384


def add_logits_(
    logits: Float[Tensor, "positions vocab"],
    hidden: Float[Tensor, "positions hidden"],
    weight: Float[Tensor, "vocab hidden"],
    *,
    spare: int,
    onto: bool,
) -> None:
    """Write `hidden @ weight.T` into `logits`, or add it to what they hold.

    A head in half precision is widened piece by piece: logits rounded to its precision would cost gradients three
    digits.

    Args:
        logits: working precision.
        hidden: working precision.
        weight: any precision.
        spare: numbers that a widened piece may take.
        onto: add.
    """
    for columns, piece in _pieces(weight, logits.dtype, spare):
        if onto:
            logits[:, columns].addmm_(hidden, piece.t())
        else:
            torch.mm(hidden, piece.t(), out=logits[:, columns])


def to_hidden(
    gradient: Float[Tensor, "positions vocab"], weight: Float[Tensor, "vocab hidden"], *, spare: int
) -> Float[Tensor, "positions hidden"]:
    """`gradient @ weight`: from the gradient in the logits to that in the hidden states.

    Sums over a long vocabulary are made of pieces: in one go float32 loses a digit over 262,144 tokens.
    """
    result = gradient.new_zeros(gradient.shape[0], weight.shape[1])
    for columns, piece in _pieces(weight, gradient.dtype, spare, longest=_LONGEST_SUM):
        result += gradient[:, columns] @ piece  # addmm would go on with the one running sum
    return result


def _pieces(
    weight: Tensor, dtype: torch.dtype, spare: int, longest: int | None = None
) -> Iterator[tuple[slice, Tensor]]:
    """Rows of the head in the working precision: all at once where it is stored so and no piece is too long."""
    vocab, hidden = weight.shape
    size = vocab if longest is None else longest
    if weight.dtype != dtype:
        size = min(size, max(1, spare // hidden))
    for start in range(0, vocab, size):
        columns = slice(start, min(start + size, vocab))
        yield columns, weight[columns].to(dtype)
