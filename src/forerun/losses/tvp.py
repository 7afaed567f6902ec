"""The TVP divergence family D_beta: from coverage (beta 0) to acceptance (beta 1 = total variation)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import BackwardCFunction, Function, once_differentiable

from forerun.losses._inputs import LOG_RATIO_FLOOR, aligned, check_beta, negligible
from forerun.losses.candidates import candidate_rows, top_candidates
from forerun.losses.divergence import Divergence
from forerun.losses.draft_vocabulary import missing
from forerun.losses.objective import Blocks, Moment, Need, Objective
from forerun.losses.schedule import adaptive_beta, fixed_beta, linear_beta, reversed_beta


def tvp(
    target_log_probs: Float[Tensor, "*batch vocab"], draft_logits: Float[Tensor, "*batch vocab"], *, beta: float
) -> Float[Tensor, "*batch"]:
    """The TVP divergence D_beta between the target's law and the draft's.

        D_beta = 1/beta sum_v target(v) [1 - min(1, draft(v)/target(v))^beta]
        D_0    = -sum_v target(v) log min(1, draft(v)/target(v))
        d D_beta / d logits_j = draft_j M - m_j,
            m = 1{draft < target} target^(1-beta) draft^beta,   M = sum(m)

    D_1 is the total variation. D_beta does not increase with beta, and TV <= D_beta <= min(D_0, TV/beta).
    Compared with TV, each under-covered token is amplified by (target/draft)^(1-beta).

    Limits:
        * Equal laws: value 0, gradient 0 (m = 0 where draft = target; the kink is there).
        * target(v) = 0: the token contributes nothing.
        * draft(v) -> 0: D_0 diverges. The value takes the log-ratio as at least `LOG_RATIO_FLOOR`, for every beta, so
          it is finite and still continuous and monotone in beta: a missed token costs target(v) 103.28 at beta 0 and
          target(v)/beta (to 1e-11) from beta 0.25 up. The *gradient is not clamped*: a token whose logit is finite,
          however low, is pulled up with the formula above, in log space, even where its probability underflows.
        * Draft logit `-inf`: the token is outside the draft vocabulary. Value as above, no gradient to or from it.

    Pruned draft vocabulary: for target rows that sum to s < 1 every token outside has draft probability 0, so the mass
    outside contributes `(1 - s) (1 - e^(beta floor)) / beta`: (1 - s) at beta 1, (1 - s)/beta for beta well above 0.01,
    103.28 (1 - s) at beta 0. It is a constant of the draft, without gradient: the value and the gradient are those of
    the full vocabulary with `-inf` logits outside.

    Args:
        target_log_probs: target rows, sum at most 1; detached here.
        draft_logits: raw logits; the softmax is taken here, in float32 (float64 stays).
        beta: prefix-survival discount in [0, 1]; see `linear_beta` for its schedule.

    Returns:
        One value per position. Differentiable once, in the draft logits.

    Raises:
        ForerunError: the shapes differ, or beta is outside [0, 1].

    References:
        The TVP paper's D_beta and gradient coefficient. phi_beta(r) = (1 - r^beta)/beta is the solution of the
        composition rule phi(xy) = phi(x) + d(x) phi(y) with d(x) = x^beta.
    """
    check_beta(beta)
    target_log_probs, draft_logits = aligned(target_log_probs, draft_logits)
    target_log_probs = target_log_probs.detach()  # stop-gradient: the target is the teacher
    target_probs = target_log_probs.exp()
    divergence: Callable[[Tensor, Tensor, Tensor, float], Float[Tensor, "*batch"]] = _CoveredDivergence.apply
    inside = divergence(target_log_probs, target_probs, draft_logits, beta)
    outside = missing(target_probs.sum(-1))
    return inside + outside * _penalty_(inside.new_full((), LOG_RATIO_FLOOR), beta)


def _penalty_(log_ratio: Float[Tensor, "*shape"], beta: float) -> Float[Tensor, "*shape"]:
    """phi_beta(e^log_ratio), in place; expm1 keeps the digits that 1 - r^beta loses at small beta."""
    if negligible(beta, log_ratio.dtype):
        return log_ratio.neg_()
    return log_ratio.mul_(beta).expm1_().mul_(-1.0 / beta)


@final
class _CoveredDivergence(Function):
    """D_beta over the tokens given. Keeps one (positions, vocabulary) tensor for the backward pass: its gradient.

    Autograd does not look in here, so the large tensors are overwritten as soon as they are used: the allocations
    cost more than the arithmetic.
    """

    @staticmethod
    def forward(
        ctx: BackwardCFunction,
        target_log_probs: Float[Tensor, "*batch vocab"],
        target_probs: Float[Tensor, "*batch vocab"],
        draft_logits: Float[Tensor, "*batch vocab"],
        beta: float,
    ) -> Float[Tensor, "*batch"]:
        draft_log_probs = torch.log_softmax(draft_logits, dim=-1)
        # -inf minus -inf, where neither law has the token, is replaced before it can spread.
        log_ratio = (draft_log_probs - target_log_probs).masked_fill_(target_probs == 0, 0.0)
        log_ratio.clamp_(min=LOG_RATIO_FLOOR, max=0.0)
        value = _penalty_(log_ratio, beta).mul_(target_probs).sum(-1)
        if any(ctx.needs_input_grad):  # of these inputs only the logits can
            idle = (draft_log_probs >= target_log_probs) | draft_log_probs.isneginf()
            interpolated = ((1.0 - beta) * target_log_probs).add_(draft_log_probs, alpha=beta).exp_()
            pull = interpolated.masked_fill_(idle, 0.0)
            draft_probs = draft_log_probs.exp_()
            ctx.save_for_backward(draft_probs.mul_(pull.sum(-1, keepdim=True)).sub_(pull))
        return value

    @staticmethod
    @once_differentiable
    def backward(
        ctx: BackwardCFunction, upstream: Float[Tensor, "*batch"]
    ) -> tuple[None, None, Float[Tensor, "*batch vocab"], None]:
        (gradient,) = ctx.saved_tensors
        return None, None, upstream.unsqueeze(-1) * gradient, None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TVP(Objective):
    """The annealed divergence from coverage to total variation.

    Attributes:
        schedule: ``linear`` anneals beta from ``beta`` to 1 over the first ``fraction`` of the run; ``fixed`` keeps
            ``beta``; ``reversed`` anneals from 1 to 0; ``adaptive`` follows the measured acceptance and needs no
            budget (`adaptive_beta`).
        beta: start of ``linear``, value of ``fixed``.
        fraction: of the run that anneals.
        candidates: restrict both laws to that many most probable draft tokens, as a path selector does; None: all.
    """

    title: ClassVar[str] = "TVP"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.TARGET_LAW})

    schedule: Literal["linear", "fixed", "reversed", "adaptive"] = "linear"
    beta: float = 0.0
    fraction: float = 0.8
    candidates: int | None = None

    def beta_at(self, step: int, total_steps: int, *, settled: float = 0.0) -> float:
        """Beta of one update."""
        if self.schedule == "fixed":
            return fixed_beta(step, total_steps, beta=self.beta)
        if self.schedule == "reversed":
            return reversed_beta(step, total_steps, fraction=self.fraction)
        if self.schedule == "adaptive":
            return adaptive_beta(settled)
        return linear_beta(step, total_steps, start=self.beta, fraction=self.fraction)

    def values(self, blocks: Blocks, moment: Moment) -> Float[Tensor, "*batch horizon"]:
        """See `Objective`."""
        target_log_probs, draft_logits = blocks.target_log_probs, blocks.draft_logits
        if self.candidates is not None:
            ids = top_candidates(draft_logits, self.candidates)
            target_log_probs, draft_logits = candidate_rows(target_log_probs, ids), candidate_rows(draft_logits, ids)
        return tvp(target_log_probs, draft_logits, beta=self.measures(moment)["beta"])

    def measures(self, moment: Moment) -> dict[str, float]:
        """The exponent of this update."""
        return {"beta": self.beta_at(moment.step, moment.total_steps, settled=moment.settled)}

    def describe(self) -> str:
        """See `Objective`."""
        words = f"TVP, {self.schedule} schedule, beta {self.beta:g}, anneal fraction {self.fraction:g}"
        return words if self.candidates is None else f"{words}, {self.candidates} candidates"

    def divergence(self, *, step: int, total_steps: int, settled: float) -> Divergence | None:
        """See `Objective`."""
        if self.candidates is not None:
            return None
        return Divergence(tvp=1.0, beta=self.beta_at(step, total_steps, settled=settled))
