"""LK losses: the log-likelihood of acceptance, and a mixture of KL and TV that the acceptance itself steers."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from jaxtyping import Float
from torch import Tensor

from forerun.errors import ForerunError
from forerun.losses._inputs import aligned
from forerun.losses.acceptance import acceptance
from forerun.losses.divergence import Divergence
from forerun.losses.kullback_leibler import forward_kl
from forerun.losses.objective import Blocks, Moment, Need, Objective
from forerun.losses.total_variation import total_variation


def lk_alpha(
    target_log_probs: Float[Tensor, "*batch vocab"], draft_logits: Float[Tensor, "*batch vocab"]
) -> Float[Tensor, "*batch"]:
    """LK-alpha ("LK-log"): the negative log-likelihood that a drafted token is accepted.

        LK = -log alpha = -logsumexp_v min(log target(v), log draft(v))
        d LK / d logits = (d TV / d logits) / alpha

    For a certain target it is the cross-entropy. It is computed in log space without an epsilon: at a cold start (a
    uniform draft over 152,000 tokens) alpha is 7e-6 and the gradient is that of the cross-entropy, while an epsilon
    inside the logarithm would leave next to nothing of it.

    Pruned draft vocabulary: the rows are used as they are. The mass outside is never accepted: with rows that sum to s
    the value is at least -log s.

    Limits: laws without a common token have alpha = 0, value `+inf` and no gradient; that takes draft logits of `-inf`
    or an empty target row, since every finite logit keeps a logarithm. Where the laws agree on a token any coefficient
    from 0 to draft(v) is a subgradient; half is taken. Equal laws: value 0 up to rounding, gradient 0.

    Args:
        target_log_probs: target rows, sum at most 1; detached here.
        draft_logits: raw logits; the softmax is taken here, in float32 (float64 stays).

    Returns:
        One value per position, in nats.

    Raises:
        ForerunError: the shapes differ.

    References:
        LK losses, arXiv 2602.23881, section 4.3.
    """
    target_log_probs, draft_logits = aligned(target_log_probs, draft_logits)
    target_log_probs = target_log_probs.detach()  # stop-gradient: the target is the teacher
    draft_log_probs = torch.log_softmax(draft_logits, dim=-1)
    log_overlaps = torch.minimum(target_log_probs, draft_log_probs)
    disjoint = log_overlaps.isneginf().all(dim=-1)  # its gradient would be 0/0; it has none
    log_alpha = torch.logsumexp(log_overlaps.masked_fill(disjoint.unsqueeze(-1), 0.0), dim=-1)
    return torch.where(disjoint, math.inf, (-log_alpha).clamp(min=0.0))  # rounding may leave 1e-7 above alpha = 1


def lk_lambda(
    target_log_probs: Float[Tensor, "*batch vocab"],
    draft_logits: Float[Tensor, "*batch vocab"],
    *,
    acceptances: Float[Tensor, "*#batch"] | None = None,
    eta: float = 3.0,
) -> Float[Tensor, "*batch"]:
    """LK-lambda ("adaptive LK"): KL while little is accepted, TV once much is.

        LK = lambda KL + (1 - lambda) TV,   lambda = exp(-eta stop_gradient(alpha))

    The paper takes one lambda for each draft position, from alpha averaged over batch and sequence: give that average
    as `acceptances`. vLLM's speculators take a lambda for each token: leave `acceptances` out.

    Limits and pruned draft vocabulary: KL renormalises inside and TV counts the mass outside, as in their own
    functions; alpha 0 gives lambda 1.

    Args:
        target_log_probs: target rows, sum at most 1; detached.
        draft_logits: raw logits.
        acceptances: mean acceptance that steers each position, broadcast to the positions, e.g. (horizon,) from
            `masked_sum(..., by_position=True).mean()`; each position's own when None. Detached here.
        eta: how fast lambda falls; the paper uses 3, and 10 for Medusa.

    Returns:
        One value per position.

    Raises:
        ForerunError: the shapes differ, the acceptances do not broadcast to the positions, or eta is negative.

    References:
        LK losses, arXiv 2602.23881, sections 4.2 and 5.3 (aggregation, eta, head decay 0.8).
    """
    if not 0.0 <= eta < math.inf:
        raise ForerunError(f"eta is {eta}; give a finite rate of at least 0")
    divergence, distance = forward_kl(target_log_probs, draft_logits), total_variation(target_log_probs, draft_logits)
    alpha = acceptance(target_log_probs, draft_logits) if acceptances is None else acceptances.to(divergence)
    try:
        share = torch.exp(-eta * alpha.detach()).expand(divergence.shape)  # stop-gradient: a weight
    except RuntimeError as error:
        raise ForerunError(
            f"acceptances {tuple(alpha.shape)} do not broadcast to the positions {tuple(divergence.shape)}"
        ) from error
    return share * divergence + (1.0 - share) * distance


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LKAlpha(Objective):
    """LK-alpha, the TVP paper's "LK-log"."""

    title: ClassVar[str] = "LK-alpha"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.TARGET_LAW})

    def values(self, blocks: Blocks, moment: Moment) -> Float[Tensor, "*batch horizon"]:
        """See `Objective`."""
        return lk_alpha(blocks.target_log_probs, blocks.draft_logits)

    def divergence(self, *, step: int, total_steps: int, settled: float) -> Divergence:
        """See `Objective`."""
        return Divergence(lk_alpha=1.0)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LKLambda(Objective):
    """LK-lambda, the TVP paper's "adaptive LK".

    Attributes:
        eta: how fast the share of KL falls.
        aggregate: ``position``: one share for each draft position, from the whole batch; ``token``: one for each token.
    """

    title: ClassVar[str] = "LK-lambda"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.TARGET_LAW})

    eta: float = 3.0
    aggregate: Literal["position", "token"] = "position"

    def values(self, blocks: Blocks, moment: Moment) -> Float[Tensor, "*batch horizon"]:
        """See `Objective`."""
        acceptances = moment.position_acceptance if self.aggregate == "position" else None
        return lk_lambda(blocks.target_log_probs, blocks.draft_logits, acceptances=acceptances, eta=self.eta)
