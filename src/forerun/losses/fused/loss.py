"""The two ways into the fused path: a value per position, and their weighted sum."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, final

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from forerun.losses.divergence import Divergence
from forerun.losses.fused.autograd import RowValues, WeightedSum
from forerun.losses.fused.call import Call
from forerun.losses.fused.chunks import Backend
from forerun.losses.fused.laws import InexactTarget, Projection, TargetStates, TopKTarget

DEFAULT_CHUNK: Final = 256


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FusedRows:
    """One number per position; 0 at masked ones.

    Attributes:
        values: of the divergence, as the eager losses give them.
        acceptances: sum min(target, draft), without gradient; 0 where no target is given.
        missing: target mass outside the draft vocabulary, or in the tail of a cut law; without gradient.
    """

    values: Float[Tensor, "*batch"]
    acceptances: Float[Tensor, "*batch"]
    missing: Float[Tensor, "*batch"]


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FusedSum:
    """The weighted sum of the values, and the numbers it came from.

    Attributes:
        total: sum of weight times value over the valid positions; carries the gradient.
        rows: without gradient.
    """

    total: Float[Tensor, ""]
    rows: FusedRows


def fused_values(
    draft: Projection | Sequence[Projection],
    target: TargetStates | TopKTarget | None,
    divergence: Divergence,
    *,
    bias: Float[Tensor, " draft_vocab"] | None = None,
    labels: Int64[Tensor, "*batch"] | None = None,
    mask: Bool[Tensor, "*batch"] | None = None,
    chunk: int = DEFAULT_CHUNK,
    backend: Backend = "torch",
) -> FusedRows:
    """Value of the divergence at every position, from hidden states; logits of more than a chunk never exist.

        logits = sum_i hidden_i @ weight_i.T + bias,   value = divergence(target, logits)

    The forward pass computes the gradient in the hidden states too: it is linear in what comes back, row by row, so
    the backward pass only scales it. Gradients of weights and bias need the sum over positions that only the backward
    pass knows, so logits are computed again there; `fused_sum` spares that.

    Memory grows by at most two chunks (`2 chunk vocab` numbers of the working precision, vocabulary of the larger law)
    over the results and the gradients themselves, at any number of positions. The working precision is float32, or
    float64 where a hidden state or a stored law is; heads in half precision are widened piece by piece.

    Args:
        draft: where the draft's logits come from; several projections are added.
        target: where the target's law comes from; may be None for cross-entropy alone.
        divergence: which mixture of losses.
        bias: of the draft head.
        labels: data tokens in draft numbering (`draft_labels`); needed by cross-entropy.
        mask: True where a position is valid; the others are not computed.
        chunk: positions of a chunk, at least 16.
        backend: `torch` runs anywhere; `triton` gives a chunk's logits to a kernel, on a GPU (tested in Triton's
            interpreter, not yet measured on one). Float32 only.

    Returns:
        Numbers per position. `values` is differentiable once, in hidden states, weights and bias of the draft.

    Raises:
        ForerunError: the shapes do not fit, the divergence needs labels or a target that is not given, the chunk is too
            small, or the backend is not installed.
    """
    call = _checked(draft, target, divergence, bias, labels, mask, None, chunk, backend)
    tensors = call.differentiable()
    apply: Callable[..., tuple[Tensor, ...]] = RowValues.apply
    values, acceptances, missing = apply(call.options(), _wanted(tensors), *call.fixed(), *tensors)
    return _rows(call, values, acceptances, missing)


def fused_sum(
    draft: Projection | Sequence[Projection],
    target: TargetStates | TopKTarget | None,
    divergence: Divergence,
    *,
    weights: Float[Tensor, "*#batch"] | None = None,
    bias: Float[Tensor, " draft_vocab"] | None = None,
    labels: Int64[Tensor, "*batch"] | None = None,
    mask: Bool[Tensor, "*batch"] | None = None,
    chunk: int = DEFAULT_CHUNK,
    backend: Backend = "torch",
) -> FusedSum:
    """Weighted sum of the divergence over valid positions: `masked_sum` of `fused_values`, each product made once.

    All gradients, those of weights and bias included, come out of the forward pass; the backward pass scales them by
    one number. Divide the total by the number of valid positions of the whole batch, as `MaskedSum` does.

    Args:
        draft: as in `fused_values`, like the other arguments.
        target: may be None for cross-entropy alone.
        divergence: which mixture of losses.
        weights: position weights that broadcast to the positions; 1 where None.
        bias: of the draft head.
        labels: data tokens in draft numbering.
        mask: True where a position is valid.
        chunk: positions of a chunk, at least 16.
        backend: `torch` or `triton`.

    Raises:
        ForerunError: as in `fused_values`, or the weights do not broadcast.
    """
    call = _checked(draft, target, divergence, bias, labels, mask, weights, chunk, backend)
    tensors = call.differentiable()
    apply: Callable[..., tuple[Tensor, ...]] = WeightedSum.apply
    total, values, acceptances, missing = apply(
        call.options(), _wanted(tensors), call.row_weights(), *call.fixed(), *tensors
    )
    return FusedSum(total=total, rows=_rows(call, values, acceptances, missing))


def _checked(
    draft: Projection | Sequence[Projection],
    target: TargetStates | TopKTarget | None,
    divergence: Divergence,
    bias: Tensor | None,
    labels: Tensor | None,
    mask: Tensor | None,
    weights: Tensor | None,
    chunk: int,
    backend: Backend,
) -> Call:
    call = Call(
        draft=(draft,) if isinstance(draft, Projection) else tuple(draft),
        target=target,
        divergence=divergence,
        bias=bias,
        labels=labels,
        mask=mask,
        weights=weights,
        chunk=chunk,
        backend=backend,
    )
    call.check()
    if isinstance(target, TopKTarget):
        warnings.warn(
            "the target's law is cut to its stored top tokens: losses are upper bounds and acceptance a lower bound, "
            "off by at most what the tail holds",
            InexactTarget,
            stacklevel=3,
        )
    return call


def _wanted(tensors: Sequence[Tensor | None]) -> list[bool]:
    """Which of them get a gradient; none where gradients are off."""
    return [torch.is_grad_enabled() and tensor is not None and tensor.requires_grad for tensor in tensors]


def _rows(call: Call, values: Tensor, acceptances: Tensor, missing: Tensor) -> FusedRows:
    batch = call.draft[0].hidden.shape[:-1]
    return FusedRows(values=values.view(batch), acceptances=acceptances.view(batch), missing=missing.view(batch))
