"""Triton kernel for GPUs: one program a row turns the logits of both laws into values and the gradient, in place.

The arithmetic is that of `rows`, which stays the reference. A row is read three times: for the softmax's denominators
with online sums, for the values and the pull's mass, for the gradient. Needs the optional package `triton`; without a
GPU it runs in Triton's interpreter only (`TRITON_INTERPRET=1` before the import).
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,misc,no-untyped-call"

from __future__ import annotations

from typing import Final

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int64
from torch import Tensor

from forerun.errors import ForerunError
from forerun.losses._inputs import LOG_RATIO_FLOOR, negligible
from forerun.losses.divergence import Divergence
from forerun.losses.fused.rows import RowResults
from forerun.losses.fused.target_rows import TargetLogits

# ruff: noqa: SIM102, SIM108  # a compiled branch and a branch on a number are not one condition

_LARGEST_BLOCK: Final = 4096
_FLOOR = tl.constexpr(LOG_RATIO_FLOOR)
_ROUNDING = tl.constexpr(32 * torch.finfo(torch.float32).eps)  # as in `missing`
_NO_TERM, _COVERAGE, _FAMILY = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)


@triton.jit
def _log_denominator(row, vocab, BLOCK: tl.constexpr):
    """Logarithm of the softmax's denominator of a row of logits, in one pass."""
    largest = tl.full((), float("-inf"), tl.float32)
    total = tl.full((), 0.0, tl.float32)
    for start in range(0, vocab, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        logits = tl.load(row + columns, mask=columns < vocab, other=float("-inf"))
        higher = tl.maximum(largest, tl.max(logits, 0))
        # A row may begin with -inf; subtracting it from itself would spread NaN.
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(largest - shift) + tl.sum(tl.exp(logits - shift), 0)
        largest = higher
    return largest + tl.log(total)


@triton.jit
def _log_laws(target, draft, ids, columns, vocab, target_log, draft_log, GATHERED: tl.constexpr):
    """Log-probabilities of both laws at some columns; past the end neither has mass."""
    inside = columns < vocab
    places = columns
    if GATHERED:
        places = tl.load(ids + columns, mask=inside, other=0)
    target_log_probs = tl.load(target + places, mask=inside, other=float("-inf")) - target_log
    draft_log_probs = tl.load(draft + columns, mask=inside, other=float("-inf")) - draft_log
    return target_log_probs, draft_log_probs


@triton.jit
def _expm1(x):
    """exp(x) - 1 for x <= 0, with the digits that the difference loses near 0."""
    near = x * (1.0 + x / 2.0 * (1.0 + x / 3.0 * (1.0 + x / 4.0 * (1.0 + x / 5.0))))
    return tl.where(x > -0.1, near, tl.exp(x) - 1.0)


@triton.jit
def _family_pull(target_log_probs, draft_log_probs, beta, FAMILY: tl.constexpr):
    """M of D_beta: target^(1-beta) draft^beta where the draft has less than the target and does not exclude it."""
    pulled = (draft_log_probs < target_log_probs) & (draft_log_probs > float("-inf"))
    exponent = target_log_probs
    if FAMILY == 2:
        exponent = (1.0 - beta) * target_log_probs + beta * draft_log_probs
    return tl.where(pulled, tl.exp(tl.where(pulled, exponent, 0.0)), 0.0)


@triton.jit
def _rows_kernel(
    target_ptr, draft_ptr, normaliser_ptr, ids_ptr, labels_ptr, values_ptr, acceptances_ptr, missing_ptr,
    target_stride, draft_stride, target_vocab, vocab,
    ce_weight, soft_weight, kl_weight, tv_weight, lk_weight, family_weight, beta,
    HAS_TARGET: tl.constexpr, NORMALISED: tl.constexpr, GATHERED: tl.constexpr, HAS_CE: tl.constexpr,
    HAS_SOFT: tl.constexpr, HAS_TV: tl.constexpr, HAS_LK: tl.constexpr, FAMILY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    draft = draft_ptr + row * draft_stride
    draft_log = _log_denominator(draft, vocab, BLOCK)
    value = tl.full((), 0.0, tl.float32)
    pull_mass = tl.full((), 0.0, tl.float32)
    label = tl.full((), -1, tl.int64)
    if HAS_CE:
        label = tl.load(labels_ptr + row)
        if label >= 0:
            value += ce_weight * (draft_log - tl.load(draft + label))
            pull_mass += ce_weight
    target = target_ptr
    target_log = tl.full((), 0.0, tl.float32)
    inverse_mass = tl.full((), 0.0, tl.float32)
    log_alpha = tl.full((), 0.0, tl.float32)
    if HAS_TARGET:
        target = target_ptr + row * target_stride
        if NORMALISED:
            target_log = tl.load(normaliser_ptr + row)
        else:
            target_log = _log_denominator(target, target_vocab, BLOCK)
        mass = tl.full((), 0.0, tl.float32)
        alpha = tl.full((), 0.0, tl.float32)
        soft = tl.full((), 0.0, tl.float32)  # sum target log draft
        negative_entropy = tl.full((), 0.0, tl.float32)
        lost = tl.full((), 0.0, tl.float32)
        tv_pull = tl.full((), 0.0, tl.float32)
        lk_largest = tl.full((), float("-inf"), tl.float32)
        lk_total = tl.full((), 0.0, tl.float32)
        lk_pull = tl.full((), 0.0, tl.float32)
        penalty = tl.full((), 0.0, tl.float32)
        family_pull = tl.full((), 0.0, tl.float32)
        for start in range(0, vocab, BLOCK):
            columns = start + tl.arange(0, BLOCK)
            target_log_probs, draft_log_probs = _log_laws(
                target, draft, ids_ptr, columns, vocab, target_log, draft_log, GATHERED
            )
            target_probs, draft_probs = tl.exp(target_log_probs), tl.exp(draft_log_probs)
            has_mass = target_probs > 0
            mass += tl.sum(target_probs, 0)
            # NaN passes through the difference; a hardware minimum would drop it.
            gap = target_probs - draft_probs
            gap = tl.where(gap < 0, 0.0, gap)
            alpha += tl.sum(target_probs - gap, 0)
            if HAS_SOFT:
                soft += tl.sum(tl.where(has_mass, target_probs * draft_log_probs, 0.0), 0)
                negative_entropy += tl.sum(tl.where(has_mass, target_probs * target_log_probs, 0.0), 0)
            if HAS_TV:
                lost += tl.sum(gap, 0)
                tv_pull += tl.sum(tl.where(gap > 0, draft_probs, 0.0), 0)
            if HAS_LK:
                lower = tl.where(target_log_probs < draft_log_probs, target_log_probs, draft_log_probs)
                share = tl.where(
                    draft_log_probs < target_log_probs, 1.0, tl.where(draft_log_probs == target_log_probs, 0.5, 0.0)
                )
                higher = tl.maximum(lk_largest, tl.max(lower, 0))
                shift = tl.where(higher == float("-inf"), 0.0, higher)
                scale = tl.exp(lk_largest - shift)
                scaled = tl.exp(lower - shift)
                lk_total = lk_total * scale + tl.sum(scaled, 0)
                lk_pull = lk_pull * scale + tl.sum(scaled * share, 0)
                lk_largest = higher
            if FAMILY > 0:
                ratio = tl.where(has_mass, draft_log_probs - target_log_probs, 0.0)
                ratio = tl.where(ratio > 0, 0.0, tl.where(ratio < _FLOOR, _FLOOR, ratio))
                if FAMILY == 1:
                    penalty += tl.sum(-target_probs * ratio, 0)
                else:
                    penalty += tl.sum(-target_probs * _expm1(beta * ratio), 0) / beta
                family_pull += tl.sum(_family_pull(target_log_probs, draft_log_probs, beta, FAMILY), 0)
        lacking = 1.0 - mass
        lacking = tl.where(lacking > _ROUNDING, lacking, 0.0)
        tl.store(acceptances_ptr + row, alpha)
        tl.store(missing_ptr + row, lacking)
        if HAS_SOFT:
            if mass > 0:
                inverse_mass = 1.0 / mass
                value += -(soft_weight + kl_weight) * soft * inverse_mass
                value += kl_weight * (negative_entropy * inverse_mass - tl.log(mass))
                pull_mass += soft_weight + kl_weight
        if HAS_TV:
            value += tv_weight * (lost + lacking)
            pull_mass += tv_weight * tv_pull
        if HAS_LK:
            if lk_largest == float("-inf"):  # laws without a common token
                value += float("inf") + alpha  # NaN of a diverged row is none of a maximum, but of alpha
                log_alpha += float("inf")
            else:
                log_alpha = lk_largest + tl.log(lk_total)
                value += lk_weight * tl.where(log_alpha > 0, 0.0, -log_alpha)
                pull_mass += lk_weight * lk_pull / lk_total
        if FAMILY == 1:
            value += family_weight * (penalty - lacking * _FLOOR)
            pull_mass += family_weight * family_pull
        if FAMILY == 2:
            value += family_weight * (penalty - lacking * _expm1(beta * _FLOOR) / beta)
            pull_mass += family_weight * family_pull
    tl.store(values_ptr + row, value)
    for start in range(0, vocab, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < vocab
        draft_log_probs = tl.load(draft + columns, mask=inside, other=float("-inf")) - draft_log
        draft_probs = tl.exp(draft_log_probs)
        gradient = draft_probs * pull_mass
        if HAS_CE:
            gradient -= tl.where(columns == label, ce_weight, 0.0)
        if HAS_TARGET:
            target_log_probs, draft_log_probs = _log_laws(
                target, draft, ids_ptr, columns, vocab, target_log, draft_log, GATHERED
            )
            target_probs = tl.exp(target_log_probs)
            if HAS_SOFT:
                gradient -= (soft_weight + kl_weight) * inverse_mass * target_probs
            if HAS_TV:
                gap = target_probs - draft_probs
                gradient -= tl.where(gap > 0, tv_weight * draft_probs, 0.0)
            if HAS_LK:
                lower = tl.where(target_log_probs < draft_log_probs, target_log_probs, draft_log_probs)
                share = tl.where(
                    draft_log_probs < target_log_probs, 1.0, tl.where(draft_log_probs == target_log_probs, 0.5, 0.0)
                )
                gradient -= lk_weight * share * tl.exp(lower - log_alpha)
            if FAMILY > 0:
                gradient -= family_weight * _family_pull(target_log_probs, draft_log_probs, beta, FAMILY)
        tl.store(draft + columns, gradient, mask=inside)


def value_and_gradient_(
    target: TargetLogits | None,
    draft_logits: Float[Tensor, "rows vocab"],
    labels: Int64[Tensor, " rows"] | None,
    divergence: Divergence,
) -> RowResults:
    """Values on rows; `draft_logits` is overwritten by the gradient in the logits. See `rows.value_and_gradient_`.

    Raises:
        ForerunError: the logits are not float32.
    """
    if draft_logits.dtype != torch.float32:
        raise ForerunError("the Triton kernel computes in float32; use backend='torch' for float64")
    rows, vocab = draft_logits.shape
    values, acceptances, missing = (draft_logits.new_zeros(rows) for _ in range(3))
    at_zero, at_one = negligible(divergence.beta, torch.float32), divergence.beta == 1.0
    tv_weight = divergence.total_variation + (divergence.tvp if at_one else 0.0)
    family = 0 if at_one or divergence.tvp == 0 else 1 if at_zero else 2
    widest = vocab if target is None else max(vocab, target.logits.shape[1])
    nothing = values  # a pointer that is never read
    if rows == 0:
        return RowResults(values=values, acceptances=acceptances, missing=missing)
    _rows_kernel[(rows,)](
        nothing if target is None else target.logits,
        draft_logits,
        nothing if target is None or target.log_normaliser is None else target.log_normaliser,
        nothing if target is None or target.draft_token_ids is None else target.draft_token_ids,
        nothing if labels is None else labels,
        values,
        acceptances,
        missing,
        0 if target is None else target.logits.stride(0),
        draft_logits.stride(0),
        0 if target is None else target.logits.shape[1],
        vocab,
        divergence.cross_entropy,
        divergence.soft_cross_entropy,
        divergence.forward_kl,
        tv_weight,
        divergence.lk_alpha,
        divergence.tvp,
        divergence.beta,
        HAS_TARGET=target is not None,
        NORMALISED=target is not None and target.log_normaliser is not None,
        GATHERED=target is not None and target.draft_token_ids is not None,
        HAS_CE=divergence.cross_entropy > 0,
        HAS_SOFT=divergence.soft_cross_entropy + divergence.forward_kl > 0,
        HAS_TV=tv_weight > 0,
        HAS_LK=divergence.lk_alpha > 0,
        FAMILY=family,
        BLOCK=min(_LARGEST_BLOCK, triton.next_power_of_2(widest)),
    )
    return RowResults(values=values, acceptances=acceptances, missing=missing)
