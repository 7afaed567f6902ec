"""Block verification: the draft is judged as a whole, and more of it stands than token by token."""

from typing import final

import torch
from jaxtyping import Float64
from torch import Tensor

from forerun.distributions import Law
from forerun.verification._inputs import check_fit
from forerun.verification.outcome import Outcome
from forerun.verification.proposal import Proposal
from forerun.verification.residual import residual_law, uncovered_mass
from forerun.verification.rule import Rule, Truncation


def block_verification(target: Law, proposal: Proposal, *, uniforms: Float64[Tensor, " horizon"]) -> Outcome:
    """Keeps the longest prefix that passes its own test; a prefix that fails does not end the search.

    With ``w_0 = 1`` and the draft tokens ``x_1 ... x_horizon``::

        w_i = min(1, w_{i-1} * target(x_i) / draft(x_i))        the prefix weight
        z_i = sum_x (w_i * target(x | x_1..x_i) - draft(x | x_1..x_i))_+
        h_i = z_i / (z_i + 1 - w_i)   for i < horizon, and 1 where this is 0 / 0
        h_horizon = w_horizon

    The largest i with ``u_i < h_i`` is accepted, or nothing. The next token comes from the target's last row if all
    stand, else from ``(w_i * target - draft)_+`` after the accepted prefix, divided by its sum. The first i tokens
    stand with probability ``w_i``, however long the draft goes on after them. The expected number of accepted tokens
    is never below that of ``token_level``, and among rules that judge one round's draft none has a larger one. With a
    greedy target the two rules decide alike for all numbers; with one-hot draft laws they have the same law.

    Args:
        target: ``horizon + 1`` rows; row j is the target's law after the context and the first j draft tokens.
        proposal: The draft tokens and the law they were drawn from.
        uniforms: One fresh number in [0, 1) per draft token, independent of how the tokens were drawn.

    Raises:
        ForerunError: Rows, vocabulary or uniforms do not fit the proposal.

    Example:
        >>> from forerun.distributions import DenseLaw
        >>> target, draft = DenseLaw(torch.tensor([[0.25, 0.75]] * 3)), DenseLaw(torch.tensor([[0.5, 0.5]] * 2))
        >>> proposal = Proposal(torch.tensor([0, 1]), draft)
        >>> block_verification(target, proposal, uniforms=torch.tensor([0.9, 0.7], dtype=torch.float64)).accepted
        2
        >>> block_verification(target, proposal, uniforms=torch.tensor([0.9, 0.8], dtype=torch.float64)).accepted
        0

    References:
        Sun et al. 2024, arXiv:2403.10444, Algorithm 2.
    """
    check_fit(target, proposal, uniforms)
    horizon = proposal.horizon
    drafted_target = target.rows(0, horizon)
    target_probs = drafted_target.prob_of(proposal.token_ids).tolist()
    draft_probs = proposal.law.prob_of(proposal.token_ids).tolist()

    weights = [1.0]
    for target_prob, draft_prob in zip(target_probs, draft_probs, strict=True):
        weights.append(min(1.0, weights[-1] * target_prob / draft_prob))
    before = torch.tensor(weights[:horizon], dtype=torch.float64, device=target.device)
    uncovered = uncovered_mass(drafted_target, proposal.law, before)  # entry i belongs to the prefix of i tokens

    accepted = 0
    for i, (number, weight) in enumerate(zip(uniforms.tolist(), weights[1:], strict=True), start=1):
        if i == horizon:
            passes = number < weight
        else:
            mass = float(uncovered[i])
            passes = weight == 1.0 or number * (mass + 1.0 - weight) < mass
        if passes:
            accepted = i

    row = target.rows(accepted, accepted + 1)
    if accepted == horizon:
        emission = row
    else:
        emission = residual_law(row, proposal.law.rows(accepted, accepted + 1), target_weight=weights[accepted])
    return Outcome(
        accepted=accepted,
        emission=emission,
        accept_probabilities=_quotients(torch.tensor(weights[1:], dtype=torch.float64, device=target.device), before),
        overlaps=_quotients(before - uncovered, before),
    )


def _quotients(after: Float64[Tensor, " horizon"], before: Float64[Tensor, " horizon"]) -> Float64[Tensor, " horizon"]:
    """``after / before``, and 0 where nothing could stand before either."""
    return torch.where(before > 0.0, after / before, 0.0)


@final
class BlockVerification(Rule):
    """``block_verification`` as a rule."""

    @property
    def name(self) -> str:
        """``block``."""
        return "block"

    @property
    def exact(self) -> bool:
        """Yes, for every draft."""
        return True

    @property
    def needs_draft_law(self) -> bool:
        """Yes, at every position of the draft, also behind the token that is tested."""
        return True

    @property
    def truncation(self) -> Truncation:
        """Before drawing, as for token-level verification; the horizon that counts is the one submitted."""
        return Truncation.BEFORE_DRAWING

    def verify(self, target: Law, proposal: Proposal, *, uniforms: Float64[Tensor, " horizon"]) -> Outcome:
        """See ``block_verification``."""
        return block_verification(target, proposal, uniforms=uniforms)
