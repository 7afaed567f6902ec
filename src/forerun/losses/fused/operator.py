"""The chunked computation as one operator of torch: a compiler sees a node and does not unroll the chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from forerun.losses.divergence import Divergence
from forerun.losses.fused.chunks import Backend, Results, Task, run_chunks
from forerun.losses.fused.laws import Projection, TargetStates, TopKTarget

_SCHEMA: Final = (
    "(Tensor[] hiddens, Tensor[] weights, Tensor?[] fixed, float[] terms, float? soft_cap, int chunk, str backend, "
    "bool[] hidden_flags, bool[] weight_flags, bool bias_flag) -> Tensor[]"
)

Fixed = Sequence[Tensor | None]
"""Tensors that never get a gradient here, None where there is none: draft bias, labels, mask, row weights; then of
`TargetStates` hidden, weight, bias, ids, normaliser; then of `TopKTarget` ids and log-probabilities."""


def _task(
    hiddens: Sequence[Tensor],
    weights: Sequence[Tensor],
    fixed: Fixed,
    terms: Sequence[float],
    soft_cap: float | None,
    chunk: int,
    backend: Backend,
    hidden_flags: Sequence[bool],
    weight_flags: Sequence[bool],
    bias_flag: bool,
) -> Task:
    bias, labels, mask, row_weights, *law = fixed
    hidden, weight, target_bias, draft_token_ids, log_normaliser, token_ids, log_probs = law
    target: TargetStates | TopKTarget | None = None
    if hidden is not None and weight is not None:
        target = TargetStates(
            hidden=hidden,
            weight=weight,
            bias=target_bias,
            soft_cap=soft_cap,
            draft_token_ids=draft_token_ids,
            log_normaliser=log_normaliser,
        )
    elif token_ids is not None and log_probs is not None:
        target = TopKTarget(token_ids=token_ids, log_probs=log_probs)
    return Task(
        draft=tuple(Projection(hidden=h, weight=w) for h, w in zip(hiddens, weights, strict=True)),
        bias=bias,
        target=target,
        labels=labels,
        mask=mask,
        row_weights=row_weights,
        divergence=Divergence.of_terms(terms),
        chunk=chunk,
        backend=backend,
        hidden_flags=tuple(hidden_flags),
        weight_flags=tuple(weight_flags),
        bias_flag=bias_flag,
    )


@torch.library.custom_op("forerun::fused_chunks", mutates_args=(), schema=_SCHEMA)
def fused_chunks(
    hiddens: Sequence[Tensor],
    weights: Sequence[Tensor],
    fixed: Fixed,
    terms: Sequence[float],
    soft_cap: float | None,
    chunk: int,
    backend: Backend,
    hidden_flags: Sequence[bool],
    weight_flags: Sequence[bool],
    bias_flag: bool,
) -> list[Tensor]:
    """`run_chunks` on a task taken apart: values, acceptances, missing, then the gradients, empty where not wanted."""
    task = _task(hiddens, weights, fixed, terms, soft_cap, chunk, backend, hidden_flags, weight_flags, bias_flag)
    return _flat(run_chunks(task))


@fused_chunks.register_fake
def _shapes(
    hiddens: Sequence[Tensor],
    weights: Sequence[Tensor],
    fixed: Fixed,
    terms: Sequence[float],
    soft_cap: float | None,
    chunk: int,
    backend: Backend,
    hidden_flags: Sequence[bool],
    weight_flags: Sequence[bool],
    bias_flag: bool,
) -> list[Tensor]:
    task = _task(hiddens, weights, fixed, terms, soft_cap, chunk, backend, hidden_flags, weight_flags, bias_flag)
    return _flat(Results(task))


def _flat(results: Results) -> list[Tensor]:
    gradients = [*results.hiddens, *results.weights, results.bias]
    nothing = [results.values.new_empty(0) if gradient is None else gradient for gradient in gradients]
    return [results.values, results.acceptances, results.missing, *nothing]
