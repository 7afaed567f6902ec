"""Token-level speculative sampling."""

from typing import final

from jaxtyping import Float64
from torch import Tensor

from forerun.distributions import Law, overlap
from forerun.verification._inputs import check_fit
from forerun.verification.outcome import Outcome
from forerun.verification.proposal import Proposal
from forerun.verification.residual import residual_law
from forerun.verification.rule import Rule, Truncation


def token_level(target: Law, proposal: Proposal, *, uniforms: Float64[Tensor, " horizon"]) -> Outcome:
    """Accepts draft tokens one after the other while ``u * draft(x) < target(x)``.

    At the first rejection the next token comes from ``residual_law`` of that position; if all tokens stand it comes
    from the target's last row. Accepted tokens followed by a draw from ``emission`` have the target's law for every
    draft. The comparison is strict, so a token that the target excludes is rejected for ``u = 0`` too, and it is a
    product in float64, not a ratio, so equal laws accept for every ``u`` below 1 and nothing can overflow. With a
    greedy target it accepts exactly the tokens that are the target's choice.

    Args:
        target: ``horizon + 1`` rows; row j is the target's law after the context and the first j draft tokens.
        proposal: The draft tokens and the law they were drawn from.
        uniforms: One fresh number in [0, 1) per draft token, independent of how the tokens were drawn.

    Raises:
        ForerunError: Rows, vocabulary or uniforms do not fit the proposal.

    Example:
        >>> import torch
        >>> from forerun.distributions import DenseLaw
        >>> draft = DenseLaw(torch.tensor([[0.75, 0.25]]))
        >>> target = DenseLaw(torch.tensor([[0.25, 0.75], [0.5, 0.5]]))
        >>> number = torch.tensor([0.6], dtype=torch.float64)
        >>> outcome = token_level(target, Proposal(torch.tensor([0]), draft), uniforms=number)
        >>> outcome.accepted, outcome.emission.dense().tolist()
        (0, [[0.0, 1.0]])

    References:
        Leviathan et al. 2023, arXiv:2211.17192, Algorithm 1; Chen et al. 2023, arXiv:2302.01318, Algorithm 2.
    """
    check_fit(target, proposal, uniforms)
    horizon = proposal.horizon
    drafted_target = target.rows(0, horizon)
    target_probs = drafted_target.prob_of(proposal.token_ids)
    draft_probs = proposal.law.prob_of(proposal.token_ids).to(target_probs.device)
    accept = uniforms.to(target_probs.device) * draft_probs < target_probs
    accepted = int(accept.long().cumprod(0).sum())

    if accepted == horizon:
        emission = target.rows(horizon, horizon + 1)
    else:
        emission = residual_law(target.rows(accepted, accepted + 1), proposal.law.rows(accepted, accepted + 1))
    return Outcome(
        accepted=accepted,
        emission=emission,
        accept_probabilities=(target_probs / draft_probs).clamp(max=1.0),
        overlaps=overlap(drafted_target, proposal.law),
    )


@final
class TokenLevel(Rule):
    """``token_level`` as a rule."""

    @property
    def name(self) -> str:
        """``token-level``."""
        return "token-level"

    @property
    def exact(self) -> bool:
        """Yes, for every draft."""
        return True

    @property
    def needs_draft_law(self) -> bool:
        """Yes, in the test and in the residual."""
        return True

    @property
    def truncation(self) -> Truncation:
        """Before drawing: dropping a token because of what it is would change how often it comes out."""
        return Truncation.BEFORE_DRAWING

    def verify(self, target: Law, proposal: Proposal, *, uniforms: Float64[Tensor, " horizon"]) -> Outcome:
        """See ``token_level``."""
        return token_level(target, proposal, uniforms=uniforms)
