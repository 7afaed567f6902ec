"""Agreement: the target draws its own tokens, and draft tokens stand as far as they are the same."""

from typing import final

from jaxtyping import Float64
from torch import Tensor

from forerun.distributions import Law, PointLaw
from forerun.verification._inputs import check_fit
from forerun.verification.outcome import Outcome
from forerun.verification.proposal import Proposal
from forerun.verification.rule import Rule, Truncation


def agreement(target: Law, proposal: Proposal, *, uniforms: Float64[Tensor, " horizon"]) -> Outcome:
    """Draws the target's token at every draft position; keeps while the draft says the same, then emits the other one.

    Every token that comes out is a draw from the target, so the output law is the target's whatever the draft is,
    however it came about, and wherever it was cut. In the engine it is the very draw of plain decoding: under one seed
    the answer is the same text at every horizon (as far as passes of different widths round alike). The price is
    acceptance: a draft token x stands with probability ``target(x)``, on average ``sum_v target(v) * draft(v)``, which
    is less than the overlap unless one of the laws is one-hot.

    Args:
        target: ``horizon + 1`` rows; row j is the target's law after the context and the first j draft tokens.
        proposal: The draft tokens; their law is looked at for the overlaps only.
        uniforms: One fresh number in [0, 1) per draft token, from which the target's token there is drawn.

    Returns:
        The emission after a disagreement is the target's token as a ``PointLaw``.

    Raises:
        ForerunError: Rows, vocabulary or uniforms do not fit the proposal.

    Example:
        >>> import torch
        >>> from forerun.distributions import DenseLaw
        >>> target = DenseLaw(torch.tensor([[0.25, 0.75], [0.25, 0.75], [0.5, 0.5]]))
        >>> proposal = Proposal(torch.tensor([1, 1]), PointLaw(torch.tensor([1, 1]), 2))
        >>> outcome = agreement(target, proposal, uniforms=torch.tensor([0.5, 0.1], dtype=torch.float64))
        >>> outcome.accepted, outcome.emission.dense().tolist()
        (1, [[1.0, 0.0]])

    References:
        The rule of serving engines that have no draft law ("target-only" sampling); it is token-level speculative
        sampling (Leviathan et al. 2023, arXiv:2211.17192) with the draft taken as one-hot.
    """
    check_fit(target, proposal, uniforms)
    horizon = proposal.horizon
    drafted_target = target.rows(0, horizon)
    drawn = drafted_target.sample(uniforms=uniforms)
    accepted = int((drawn == proposal.token_ids.to(drawn.device)).long().cumprod(0).sum())
    if accepted == horizon:
        emission = target.rows(horizon, horizon + 1)
    else:
        emission = PointLaw(drawn[accepted : accepted + 1], target.vocab_size)
    return Outcome(
        accepted=accepted,
        emission=emission,
        accept_probabilities=drafted_target.prob_of(proposal.token_ids),
        overlaps=_meeting_probabilities(drafted_target, proposal.law),
    )


def _meeting_probabilities(target: Law, draft: Law) -> Float64[Tensor, " rows"]:
    """How often independent draws from both laws are the same token: ``sum_v target(v) * draft(v)``."""
    if isinstance(target, PointLaw):
        return draft.prob_of(target.token_ids)
    if isinstance(draft, PointLaw):
        return target.prob_of(draft.token_ids)
    return (target.dense() * draft.dense()).sum(-1)


@final
class Agreement(Rule):
    """``agreement`` as a rule."""

    @property
    def name(self) -> str:
        """``agreement``."""
        return "agreement"

    @property
    def exact(self) -> bool:
        """Yes, for every draft and every truncation of it."""
        return True

    @property
    def draws_as_plain_decoding(self) -> bool:
        """Yes: nobody learns what the target would have drawn after the first disagreement."""
        return True

    @property
    def needs_draft_law(self) -> bool:
        """No."""
        return False

    @property
    def truncation(self) -> Truncation:
        """Any: what comes out is drawn afresh, so there is nothing to select on."""
        return Truncation.ANY_DRAFT

    def verify(self, target: Law, proposal: Proposal, *, uniforms: Float64[Tensor, " horizon"]) -> Outcome:
        """See ``agreement``."""
        return agreement(target, proposal, uniforms=uniforms)
