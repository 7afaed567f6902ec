"""Value and gradient of a mixture of losses on a few rows of logits, in place: the plain torch version.

It knows rows that fit a processor's cache. Where logits come from and where gradients go is not its business. Tensors
are overwritten as soon as they are used, and an indicator is a sign times a number: a comparison that fills costs as
much as four exponentials.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, final

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from forerun.losses._inputs import LOG_RATIO_FLOOR, negligible
from forerun.losses.draft_vocabulary import missing
from forerun.losses.fused.divergence import Divergence

_SMALL_BETA: Final = 0.25
"""Below, the floor of the log-ratio can be seen in float32: e^(0.25 floor) is 6e-12."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Law:
    """Probabilities of some tokens on each row, and their logarithms."""

    log_probs: Float[Tensor, "rows vocab"]
    probs: Float[Tensor, "rows vocab"]


def law_(logits: Float[Tensor, "rows vocab"]) -> Law:
    """The softmax of logits, which its probabilities overwrite.

    `log_softmax` adds a long row up in a few running sums and loses two digits of float32 over 262,144 tokens. The sum
    of what it returns is taken pairwise and is the correction.
    """
    log_probs = torch.log_softmax(logits, dim=-1)
    probs = torch.exp(log_probs, out=logits)
    mass = probs.sum(-1, keepdim=True)
    return Law(log_probs=log_probs.sub_(mass.log()), probs=probs.div_(mass))


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowResults:
    """One number per row.

    Attributes:
        values: of the divergence.
        acceptances: sum min(target, draft); 0 where there is no target.
        missing: target mass that the row does not hold.
    """

    values: Float[Tensor, " rows"]
    acceptances: Float[Tensor, " rows"]
    missing: Float[Tensor, " rows"]


def value_and_gradient_(
    target: Law | None,
    draft_logits: Float[Tensor, "rows vocab"],
    labels: Int64[Tensor, " rows"] | None,
    divergence: Divergence,
) -> RowResults:
    """Values on rows; `draft_logits` is overwritten by the gradient in the logits, the target's tensors are spoilt."""
    draft = law_(draft_logits)
    draft_log_probs, draft_probs = draft.log_probs, draft.probs
    values = draft_probs.new_zeros(len(draft_probs))
    acceptances, lacking = torch.zeros_like(values), torch.zeros_like(values)
    pull: Tensor | None = None
    if labels is not None and divergence.cross_entropy > 0:
        value, pull = _cross_entropy(labels, draft_log_probs)
        values += divergence.cross_entropy * value
        pull *= divergence.cross_entropy
    if target is not None:
        laws = _laws(target, draft)
        acceptances, lacking = torch.minimum(laws.target, laws.draft).sum(-1), missing(laws.mass)
        for weight, loss in _target_terms(divergence, values.dtype):
            value, term = loss(laws)
            values += weight * value
            pull = term.mul_(weight) if pull is None else pull.add_(term, alpha=weight)
    assert pull is not None
    draft_probs.mul_(pull.sum(-1, keepdim=True)).sub_(pull)  # the gradient, q M - m
    return RowResults(values=values, acceptances=acceptances, missing=lacking)


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Laws:
    """Both laws, each as probabilities and logarithms; no product or difference of a pair of them is NaN.

    Attributes:
        target_log: finite; the smallest number where the target is 0.
        target: probabilities.
        draft_log: -inf only where the draft excludes a token that the target has.
        draft: probabilities.
        mass: of the target's row.
        excludes: whether `draft_log` holds -inf at all.
    """

    target_log: Float[Tensor, "rows vocab"]
    target: Float[Tensor, "rows vocab"]
    draft_log: Float[Tensor, "rows vocab"]
    draft: Float[Tensor, "rows vocab"]
    mass: Float[Tensor, " rows"]
    excludes: bool

    def log_ratio(self) -> Float[Tensor, "rows vocab"]:
        """log(draft/target), a new tensor."""
        return self.draft_log - self.target_log


_Term = tuple[Float[Tensor, " rows"], Float[Tensor, "rows vocab"]]  # value and pull, both new tensors


def _laws(target: Law, draft: Law) -> _Laws:
    target.log_probs.clamp_(min=torch.finfo(target.probs.dtype).min)
    excludes = bool(draft.log_probs.min() == -math.inf) if draft.log_probs.numel() else False
    if excludes:
        draft.log_probs.masked_fill_(target.probs == 0, 0.0)
    return _Laws(target.log_probs, target.probs, draft.log_probs, draft.probs, target.probs.sum(-1), excludes)


def _target_terms(divergence: Divergence, dtype: torch.dtype) -> Iterator[tuple[float, Callable[[_Laws], _Term]]]:
    """The losses that look at the target's law, with their weights."""
    at_zero, at_one = negligible(divergence.beta, dtype), divergence.beta == 1.0
    weighted: list[tuple[float, Callable[[_Laws], _Term]]] = [
        (divergence.soft_cross_entropy, _soft_cross_entropy),
        (divergence.forward_kl, _forward_kl),
        (divergence.total_variation + (divergence.tvp if at_one else 0.0), _total_variation),
        (divergence.lk_alpha, _lk_alpha),
        (divergence.tvp if at_zero else 0.0, _coverage),
        (0.0 if at_zero or at_one else divergence.tvp, partial(_tvp, beta=divergence.beta)),
    ]
    return ((weight, loss) for weight, loss in weighted if weight > 0)


def _cross_entropy(labels: Int64[Tensor, " rows"], draft_log_probs: Float[Tensor, "rows vocab"]) -> _Term:
    index, has_label = labels.clamp(min=0)[:, None], labels >= 0
    value = torch.where(has_label, -draft_log_probs.gather(1, index)[:, 0], 0.0)
    return value, torch.zeros_like(draft_log_probs).scatter_(1, index, has_label.to(value)[:, None])


def _soft_cross_entropy(laws: _Laws) -> _Term:
    law = _renormalised(laws)
    return -(law * laws.draft_log).sum(-1), law


def _forward_kl(laws: _Laws) -> _Term:
    law = _renormalised(laws)
    log_mass = torch.where(laws.mass > 0, laws.mass.log(), 0.0)
    return -laws.log_ratio().mul_(law).sum(-1) - log_mass, law


def _renormalised(laws: _Laws) -> Float[Tensor, "rows vocab"]:
    return laws.target * torch.where(laws.mass > 0, 1.0 / laws.mass, 0.0)[:, None]


def _total_variation(laws: _Laws) -> _Term:
    lost = (laws.target - laws.draft).relu_()
    value = lost.sum(-1) + missing(laws.mass)
    return value, lost.sign_().mul_(laws.draft)


def _lk_alpha(laws: _Laws) -> _Term:
    overlap = torch.minimum(laws.target_log, laws.draft_log)
    log_alpha = overlap.logsumexp(-1)
    # Laws without a common token: the value is infinite and no token can be pulled.
    disjoint = log_alpha < torch.finfo(log_alpha.dtype).min / 2
    overlap.sub_(torch.where(disjoint, math.inf, log_alpha)[:, None]).exp_()
    shares = laws.log_ratio().sign_().mul_(-0.5).add_(0.5)  # half where the laws agree, as in `lk_alpha`
    return torch.where(disjoint, math.inf, (-log_alpha).clamp(min=0.0)), overlap.mul_(shares)


def _coverage(laws: _Laws) -> _Term:
    """D_0."""
    ratio = laws.log_ratio()
    pull = _under_covered(ratio).mul_(laws.target)
    if laws.excludes:
        pull.masked_fill_(laws.draft_log == -math.inf, 0.0)
    value = -ratio.clamp_(min=LOG_RATIO_FLOOR, max=0.0).mul_(laws.target).sum(-1)
    return value - missing(laws.mass) * LOG_RATIO_FLOOR, pull


def _tvp(laws: _Laws, beta: float) -> _Term:
    """D_beta for 0 < beta < 1."""
    ratio = laws.log_ratio().clamp_(max=0.0)
    if beta < _SMALL_BETA:
        pull = torch.add(laws.target_log, ratio, alpha=beta).exp_().mul_(_under_covered(ratio))
        penalty = ratio.clamp_(min=LOG_RATIO_FLOOR).mul_(beta).expm1_().mul_(laws.target).sum(-1) / -beta
    else:  # here 1 - e^(beta x) keeps its digits and the floor is below them; this saves every third exponential
        kept = (ratio * beta).exp_().mul_(laws.target)
        penalty = (laws.target - kept).sum(-1) / beta
        pull = kept.mul_(ratio.sign_().neg_())
    return penalty + missing(laws.mass) * (-math.expm1(beta * LOG_RATIO_FLOOR) / beta), pull


def _under_covered(log_ratio: Float[Tensor, "rows vocab"]) -> Float[Tensor, "rows vocab"]:
    """1 where the draft is below the target, else 0; a new tensor."""
    return log_ratio.clamp(max=0.0).sign_().neg_()
