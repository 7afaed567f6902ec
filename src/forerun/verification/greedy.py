"""Greedy verification, for temperature 0."""

from typing import final

from jaxtyping import Float64
from torch import Tensor

from forerun.distributions import Law, PointLaw
from forerun.errors import ForerunError
from forerun.verification._inputs import check_fit
from forerun.verification.outcome import Outcome
from forerun.verification.proposal import Proposal
from forerun.verification.rule import Rule, Truncation


def greedy(target: Law, proposal: Proposal, *, uniforms: Float64[Tensor, " horizon"]) -> Outcome:
    """Keeps draft tokens while they are the target's choice; then the target's choice itself.

    What every exact rule does at temperature 0, without numbers and without looking at the draft law.

    Args:
        target: ``horizon + 1`` rows of a ``PointLaw``.
        proposal: The draft tokens; their law is looked at for the overlaps only.
        uniforms: As for every rule; they decide nothing.

    Raises:
        ForerunError: The target samples, or rows, vocabulary or uniforms do not fit the proposal.

    Example:
        >>> import torch
        >>> proposal = Proposal(torch.tensor([3, 1]), PointLaw(torch.tensor([3, 1]), 5))
        >>> outcome = greedy(PointLaw(torch.tensor([3, 4, 0]), 5), proposal, uniforms=torch.zeros(2).double())
        >>> outcome.accepted, outcome.emission.dense().argmax().item()
        (1, 4)
    """
    check_fit(target, proposal, uniforms)
    if not isinstance(target, PointLaw):
        raise ForerunError(
            "greedy verification is for temperature 0 only; set the temperature to 0 or take another rule"
        )
    horizon = proposal.horizon
    drafted_target = target.rows(0, horizon)
    chosen = drafted_target.prob_of(proposal.token_ids)  # 1 where the target chooses the same
    accepted = int(chosen.cumprod(0).sum())
    return Outcome(
        accepted=accepted,
        emission=target.rows(accepted, accepted + 1),
        accept_probabilities=chosen,
        overlaps=proposal.law.prob_of(drafted_target.token_ids),
    )


@final
class Greedy(Rule):
    """``greedy`` as a rule."""

    @property
    def name(self) -> str:
        """``greedy``."""
        return "greedy"

    @property
    def exact(self) -> bool:
        """Yes, for the one temperature it takes."""
        return True

    @property
    def needs_draft_law(self) -> bool:
        """No."""
        return False

    @property
    def truncation(self) -> Truncation:
        """Any: the output is the target's choice at every position."""
        return Truncation.ANY_DRAFT

    def verify(self, target: Law, proposal: Proposal, *, uniforms: Float64[Tensor, " horizon"]) -> Outcome:
        """See ``greedy``."""
        return greedy(target, proposal, uniforms=uniforms)
