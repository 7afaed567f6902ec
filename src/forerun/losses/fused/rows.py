"""Value and gradient of a mixture of losses on a few rows of logits, in place: the plain torch version.

It knows rows that fit a processor's cache. Where logits come from and where gradients go is not its business. Tensors
are overwritten as soon as they are used; an indicator is a sign times a number, since a comparison that fills costs as
much as eight exponentials; and an exponential is a power of two, at half the time of `exp` and of a softmax.
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
from forerun.losses.divergence import Divergence
from forerun.losses.draft_vocabulary import missing

_LOG2_E: Final = math.log2(math.e)

_SMALL_BETA: Final = 0.25
"""Below, the floor of the log-ratio can be seen in float32: e^(0.25 floor) is 6e-12."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Law:
    """Probabilities of some tokens on each row: `probs = exp(logits - log_normaliser)`."""

    logits: Float[Tensor, "rows vocab"]
    log_normaliser: Float[Tensor, " rows"]
    probs: Float[Tensor, "rows vocab"]


def law_(logits: Float[Tensor, "rows vocab"]) -> Law:
    """The softmax of logits, which are shifted so that the largest of each row is 0.

    `softmax` adds a long row up in a few running sums and loses two digits of float32 over 262,144 tokens, and its
    exponential is good to 1e-6. Here the sum is pairwise, and logarithms of the law are differences of small numbers.
    """
    logits -= logits.amax(-1, keepdim=True)
    probs = exp_of(logits)
    mass = probs.sum(-1, keepdim=True)
    return Law(logits=logits, log_normaliser=mass.log()[:, 0], probs=probs.div_(mass))


def exp_of(logarithms: Float[Tensor, "rows vocab"], *, power: float = 1.0) -> Float[Tensor, "rows vocab"]:
    """exp(power x), a new tensor."""
    return torch.mul(logarithms, power * _LOG2_E).exp2_()


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
    values = draft_logits.new_zeros(len(draft_logits))
    acceptances, lacking = torch.zeros_like(values), torch.zeros_like(values)
    pull: Tensor | None = None
    if labels is not None and divergence.cross_entropy > 0:
        value, pull = _cross_entropy(labels, draft)
        values += divergence.cross_entropy * value
        pull *= divergence.cross_entropy
    if target is not None:
        laws = _laws(target, draft)
        acceptances, lacking = torch.minimum(laws.target, laws.draft).sum(-1), missing(laws.mass)
        for weight, loss in _target_terms(divergence, values.dtype):
            value, term = loss(laws)
            values += weight * value
            if pull is None:
                pull = term if weight == 1.0 else term.mul_(weight)
            else:
                pull.add_(term, alpha=weight)
    assert pull is not None
    torch.sub(draft.probs.mul_(pull.sum(-1, keepdim=True)), pull, out=draft_logits)  # the gradient, q M - m
    return RowResults(values=values, acceptances=acceptances, missing=lacking)


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Laws:
    """Both laws, as probabilities and as logits; the logarithm of their ratio is never NaN.

    Attributes:
        target_logits: -inf where the target excludes a token.
        target: probabilities.
        draft_logits: -inf only where the draft excludes a token that the target has.
        draft: probabilities.
        mass: of the target's row.
        log_normalisers: of the target and of the draft.
        excludes: whether `draft_logits` holds -inf at all.
    """

    target_logits: Float[Tensor, "rows vocab"]
    target: Float[Tensor, "rows vocab"]
    draft_logits: Float[Tensor, "rows vocab"]
    draft: Float[Tensor, "rows vocab"]
    mass: Float[Tensor, " rows"]
    log_normalisers: tuple[Float[Tensor, " rows"], Float[Tensor, " rows"]]
    excludes: bool

    def log_ratio(self) -> Float[Tensor, "rows vocab"]:
        """log(draft/target), a new tensor; +inf where only the draft has the token."""
        of_target, of_draft = self.log_normalisers
        return (self.draft_logits - self.target_logits).add_((of_target - of_draft)[:, None])


_Term = tuple[Float[Tensor, " rows"], Float[Tensor, "rows vocab"]]  # value and pull, both new tensors


def _laws(target: Law, draft: Law) -> _Laws:
    excludes = bool(draft.logits.min() == -math.inf) if draft.logits.numel() else False
    if excludes:
        draft.logits.masked_fill_(target.probs == 0, 0.0)
    normalisers = (target.log_normaliser, draft.log_normaliser)
    return _Laws(target.logits, target.probs, draft.logits, draft.probs, target.probs.sum(-1), normalisers, excludes)


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


def _cross_entropy(labels: Int64[Tensor, " rows"], draft: Law) -> _Term:
    index, has_label = labels.clamp(min=0)[:, None], labels >= 0
    value = torch.where(has_label, draft.log_normaliser - draft.logits.gather(1, index)[:, 0], 0.0)
    return value, torch.zeros_like(draft.logits).scatter_(1, index, has_label.to(value)[:, None])


def _soft_cross_entropy(laws: _Laws) -> _Term:
    law = _renormalised(laws)
    draft_log_probs = laws.draft_logits - laws.log_normalisers[1][:, None]
    return -draft_log_probs.mul_(law).sum(-1), law


def _forward_kl(laws: _Laws) -> _Term:
    law = _renormalised(laws)
    log_mass = torch.where(laws.mass > 0, laws.mass.log(), 0.0)
    log_ratio = laws.log_ratio().clamp_(max=torch.finfo(law.dtype).max)  # times 0, where the target has no such token
    return -log_ratio.mul_(law).sum(-1) - log_mass, law


def _renormalised(laws: _Laws) -> Float[Tensor, "rows vocab"]:
    return laws.target * torch.where(laws.mass > 0, 1.0 / laws.mass, 0.0)[:, None]


def _total_variation(laws: _Laws) -> _Term:
    lost = (laws.target - laws.draft).relu_()
    value = lost.sum(-1) + missing(laws.mass)
    return value, lost.sign_().mul_(laws.draft)


def _lk_alpha(laws: _Laws) -> _Term:
    log_ratio = laws.log_ratio()
    shares = log_ratio.sign().mul_(-0.5).add_(0.5)  # half where the laws agree, as in `lk_alpha`
    overlap = log_ratio.clamp_(max=0.0).add_(laws.target_logits)
    peak = overlap.amax(-1, keepdim=True)
    # Laws without a common token: the value is infinite and no token can be pulled.
    disjoint = peak == -math.inf
    overlap.sub_(torch.where(disjoint, math.inf, peak)).mul_(_LOG2_E).exp2_()
    mass = overlap.sum(-1, keepdim=True)
    log_alpha = (peak + mass.log())[:, 0] - laws.log_normalisers[0]
    pull = overlap.mul_(shares).div_(torch.where(disjoint, 1.0, mass))
    return torch.where(disjoint[:, 0], math.inf, (-log_alpha).clamp(min=0.0)), pull


def _coverage(laws: _Laws) -> _Term:
    """D_0."""
    ratio = laws.log_ratio().clamp_(max=0.0)
    pull = ratio.sign().neg_().mul_(laws.target)
    if laws.excludes:
        pull.masked_fill_(laws.draft_logits == -math.inf, 0.0)
    value = -ratio.clamp_(min=LOG_RATIO_FLOOR).mul_(laws.target).sum(-1)
    return value - missing(laws.mass) * LOG_RATIO_FLOOR, pull


def _tvp(laws: _Laws, beta: float) -> _Term:
    """D_beta for 0 < beta < 1."""
    ratio = laws.log_ratio().clamp_(max=0.0)
    kept = exp_of(ratio, power=beta).mul_(laws.target)
    if beta < _SMALL_BETA:
        pull = kept.mul_(ratio.sign().neg_())
        penalty = ratio.clamp_(min=LOG_RATIO_FLOOR).mul_(beta).expm1_().mul_(laws.target).sum(-1) / -beta
    else:  # here 1 - e^(beta x) keeps its digits and the floor is below them
        lost = torch.sub(laws.target, kept, out=ratio).relu_()
        penalty = lost.sum(-1) / beta
        pull = kept.mul_(lost.sign_())
    return penalty + missing(laws.mass) * (-math.expm1(beta * LOG_RATIO_FLOOR) / beta), pull
