"""Token-level verification with a relaxed threshold. Lossy."""

from dataclasses import replace
from typing import final

import torch
from jaxtyping import Float64
from torch import Tensor

from forerun.distributions import Law, PointLaw
from forerun.errors import ForerunError
from forerun.verification.outcome import Outcome
from forerun.verification.proposal import Proposal
from forerun.verification.rule import Rule, Truncation
from forerun.verification.token_level import token_level


def lenient(target: Law, proposal: Proposal, *, uniforms: Float64[Tensor, " horizon"], lenience: float) -> Outcome:
    """Accepts draft tokens one after the other while ``u * lenience * draft(x) < target(x)``; **not exact**.

    Otherwise it is ``token_level``, which it equals for lenience 1; smaller values let more through. No token comes out
    more often than ``target(x) / lenience``, so what the target finds rare stays rare; nothing keeps a token from
    coming out less often. With a greedy target the rule is exact.

    Args:
        target: ``horizon + 1`` rows; row j is the target's law after the context and the first j draft tokens.
        proposal: The draft tokens and the law they were drawn from.
        uniforms: One fresh number in [0, 1) per draft token, independent of how the tokens were drawn.
        lenience: In (0, 1].

    Raises:
        ForerunError: Rows, vocabulary or uniforms do not fit the proposal.

    References:
        Leviathan et al. 2023, arXiv:2211.17192, Appendix A.5 (lenience).
    """
    outcome = token_level(target, proposal, uniforms=lenience * uniforms)
    drafted_target = target.rows(0, proposal.horizon)
    draft_probs = proposal.law.prob_of(proposal.token_ids).to(target.device)
    return replace(
        outcome,
        accept_probabilities=(drafted_target.prob_of(proposal.token_ids) / (lenience * draft_probs)).clamp(max=1.0),
        overlaps=_relaxed_overlap(drafted_target, proposal.law, lenience),
    )


def _relaxed_overlap(target: Law, draft: Law, lenience: float) -> Float64[Tensor, " rows"]:
    """How often a token drawn from the draft stands: ``sum_v min(target(v) / lenience, draft(v))``."""
    if isinstance(target, PointLaw):
        return draft.prob_of(target.token_ids)
    if isinstance(draft, PointLaw):
        return (target.prob_of(draft.token_ids) / lenience).clamp(max=1.0)
    return torch.minimum(target.dense() / lenience, draft.dense()).sum(-1).clamp(max=1.0)


@final
class Lenient(Rule):
    """``lenient`` as a rule.

    Args:
        lenience: In (0, 1]; the paper tries 0.5, 0.3 and 0.1.

    Raises:
        ForerunError: A lenience outside (0, 1].
    """

    def __init__(self, lenience: float) -> None:
        """Checks the number."""
        if not 0.0 < lenience <= 1.0:
            raise ForerunError(f"lenience is {lenience}; give a number above 0, up to 1")
        self._lenience = lenience

    @property
    def name(self) -> str:
        """``lenient``."""
        return "lenient"

    @property
    def exact(self) -> bool:
        """No: what the draft likes more than the target does comes out too often."""
        return False

    @property
    def needs_draft_law(self) -> bool:
        """Yes, in the test and in the residual."""
        return True

    @property
    def truncation(self) -> Truncation:
        """Before drawing, as for token-level verification; another cut adds a bias of its own."""
        return Truncation.BEFORE_DRAWING

    def verify(self, target: Law, proposal: Proposal, *, uniforms: Float64[Tensor, " horizon"]) -> Outcome:
        """See ``lenient``."""
        return lenient(target, proposal, uniforms=uniforms, lenience=self._lenience)
