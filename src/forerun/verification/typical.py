"""Typical acceptance: what the target finds likely enough stands. Lossy."""

from typing import final

import torch
from jaxtyping import Float64
from torch import Tensor

from forerun.distributions import Law, PointLaw
from forerun.errors import ForerunError
from forerun.verification._inputs import check_fit
from forerun.verification.outcome import Outcome
from forerun.verification.proposal import Proposal
from forerun.verification.rule import Rule, Truncation

MEDUSA_EPSILON = 0.09
"""Medusa's published cap on the threshold."""

MEDUSA_DELTA = 0.3
"""Medusa's published factor of the entropy term. Its code has the two defaults the other way round."""


def typical_acceptance(
    target: Law,
    proposal: Proposal,
    *,
    uniforms: Float64[Tensor, " horizon"],
    epsilon: float = MEDUSA_EPSILON,
    delta: float = MEDUSA_DELTA,
) -> Outcome:
    """Keeps draft tokens while ``target(x) > min(epsilon, delta * exp(-H(target)))``; **not exact**.

    The entropy H, in nats, is that of the processed target law at the token's position, so where the target is
    undecided more is let through. Nothing is random in the test. The next token comes from the target's own row after
    the accepted ones. With a greedy target the rule is exact: it keeps the target's choices.

    Args:
        target: ``horizon + 1`` rows; row j is the target's law after the context and the first j draft tokens.
        proposal: The draft tokens; their law is looked at for the overlaps only.
        uniforms: As for every rule; they decide nothing.
        epsilon: Largest threshold, in (0, 1).
        delta: Threshold of a target that is sure of its token, above 0.

    Raises:
        ForerunError: Rows, vocabulary or uniforms do not fit the proposal.

    References:
        Cai et al. 2024, arXiv:2401.10774, Section 2.3.1.
    """
    check_fit(target, proposal, uniforms)
    horizon = proposal.horizon
    drafted_target = target.rows(0, horizon)
    thresholds = (delta * torch.exp(-drafted_target.entropy())).clamp(max=epsilon)
    stands = (drafted_target.prob_of(proposal.token_ids) > thresholds).double()
    accepted = int(stands.cumprod(0).sum())
    return Outcome(
        accepted=accepted,
        emission=target.rows(accepted, accepted + 1),
        accept_probabilities=stands,
        overlaps=_drawn_above(drafted_target, proposal.law, thresholds),
    )


def _drawn_above(target: Law, draft: Law, thresholds: Float64[Tensor, " rows"]) -> Float64[Tensor, " rows"]:
    """Draft mass on the tokens whose target probability lies above the threshold."""
    if isinstance(target, PointLaw):
        return draft.prob_of(target.token_ids)
    if isinstance(draft, PointLaw):
        return (target.prob_of(draft.token_ids) > thresholds).double()
    return (draft.dense() * (target.dense() > thresholds[:, None])).sum(-1)


@final
class TypicalAcceptance(Rule):
    """``typical_acceptance`` as a rule.

    Args:
        epsilon: Largest threshold, in (0, 1).
        delta: Threshold of a target that is sure of its token, above 0.

    Raises:
        ForerunError: A number outside its range.
    """

    def __init__(self, *, epsilon: float = MEDUSA_EPSILON, delta: float = MEDUSA_DELTA) -> None:
        """Checks the numbers."""
        if not (0.0 < epsilon < 1.0 and delta > 0.0):
            raise ForerunError(
                f"typical acceptance has epsilon {epsilon} and delta {delta}; give epsilon in (0, 1) and delta above 0"
            )
        self._epsilon = epsilon
        self._delta = delta

    @property
    def name(self) -> str:
        """``typical``."""
        return "typical"

    @property
    def exact(self) -> bool:
        """No: likely draft tokens always stand, so they come out too often."""
        return False

    @property
    def needs_draft_law(self) -> bool:
        """No."""
        return False

    @property
    def truncation(self) -> Truncation:
        """Before drawing: the output law depends on how drafts are drawn, and so on how they are cut."""
        return Truncation.BEFORE_DRAWING

    def verify(self, target: Law, proposal: Proposal, *, uniforms: Float64[Tensor, " horizon"]) -> Outcome:
        """See ``typical_acceptance``."""
        return typical_acceptance(target, proposal, uniforms=uniforms, epsilon=self._epsilon, delta=self._delta)
