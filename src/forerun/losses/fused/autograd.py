"""How gradients come out of the chunked computation: scaled per position, or once for a weighted sum."""

from __future__ import annotations

from typing import Any, Final, final

from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from forerun.losses.fused.chunks import Backend
from forerun.losses.fused.operator import fused_chunks

_NUM_FIXED: Final = 9
Options = tuple[int, tuple[float, ...], float | None, int, Backend]
"""Numbers of `Call.options`: projections, terms of the divergence, soft cap, chunk, backend."""


def _run(
    options: Options, tensors: tuple[Tensor | None, ...], row_weights: Tensor | None, wanted: list[bool]
) -> list[Tensor]:
    """The operator on `Call.fixed` followed by `Call.differentiable`, with a flag for each of the latter."""
    count, terms, soft_cap, chunk, backend = options
    labels, mask, *law = tensors[:_NUM_FIXED]
    *projections, bias = tensors[_NUM_FIXED:]
    results: list[Tensor] = fused_chunks(
        projections[:count],
        projections[count:],
        [bias, labels, mask, row_weights, *law],
        list(terms),
        soft_cap,
        chunk,
        backend,
        wanted[:count],
        wanted[count : 2 * count],
        wanted[-1],
    )
    return results


@final
class RowValues(Function):
    """Values with a gradient per position.

    The gradient in the hidden states waits for its scale. Those of weights and bias are sums over positions, each
    times what the backward pass brings: they are computed there, from logits that are computed again.
    """

    @staticmethod
    def forward(
        ctx: Any, options: Options, wanted: list[bool], *tensors: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Values, acceptances, missing."""
        count = options[0]
        values, acceptances, missing, *gradients = _run(options, tensors, None, wanted[:count] + [False] * (count + 1))
        ctx.mark_non_differentiable(acceptances, missing)
        ctx.options, ctx.wanted = options, wanted
        saved: list[Tensor | None] = [*gradients[:count], *(tensors if any(wanted[count:]) else ())]
        ctx.save_for_backward(*saved)
        return values, acceptances, missing

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor, *ignored: Tensor | None) -> tuple[Tensor | None, ...]:
        """Scale rows; compute again what is summed over them."""
        options, wanted = ctx.options, ctx.wanted
        count = options[0]
        gradients: list[Tensor | None] = [
            _scaled(gradient, upstream) if flag else None
            for gradient, flag in zip(ctx.saved_tensors[:count], wanted[:count], strict=True)
        ]
        gradients += [None] * (count + 1)
        if any(wanted[count:]):
            flags = [False] * count + wanted[count:]
            results = _run(options, ctx.saved_tensors[count:], upstream, flags)[3:]
            gradients[count:] = [
                result if flag else None for result, flag in zip(results[count:], wanted[count:], strict=True)
            ]
        return (None, None, *[None] * _NUM_FIXED, *gradients)


@final
class WeightedSum(Function):
    """The sum of weight times value, with all gradients computed on the way."""

    @staticmethod
    def forward(
        ctx: Any, options: Options, wanted: list[bool], row_weights: Tensor, *tensors: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Total, values, acceptances, missing."""
        values, acceptances, missing, *gradients = _run(options, tensors, row_weights, wanted)
        ctx.mark_non_differentiable(values, acceptances, missing)
        ctx.wanted = wanted
        ctx.save_for_backward(*gradients)
        return (values * row_weights).sum(), values, acceptances, missing

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor, *ignored: Tensor | None) -> tuple[Tensor | None, ...]:
        """Scale everything by one number."""
        gradients = [
            gradient * upstream.to(gradient.dtype) if flag else None
            for gradient, flag in zip(ctx.saved_tensors, ctx.wanted, strict=True)
        ]
        return (None, None, None, *[None] * _NUM_FIXED, *gradients)


def _scaled(gradient: Float[Tensor, "positions hidden"], upstream: Float[Tensor, " positions"]) -> Tensor:
    """Each row times its factor, in the working precision, then in the gradient's own."""
    return (gradient * upstream[:, None]).to(gradient.dtype)
