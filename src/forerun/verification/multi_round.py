"""Speculative sampling of siblings: one token-level round after another on the same node."""

from jaxtyping import Float64
from torch import Tensor

from forerun.distributions import Law, overlap
from forerun.errors import ForerunError
from forerun.verification.candidates import Candidates
from forerun.verification.descent import Siblings, Trial, descend
from forerun.verification.exclusion import excluding
from forerun.verification.residual import residual_law
from forerun.verification.tree_outcome import TreeOutcome
from forerun.verification.tree_proposal import TreeProposal


def multi_round(target: Law, proposal: TreeProposal, *, uniforms: Float64[Tensor, " nodes"]) -> TreeOutcome:
    """At each node accepts child x if ``u * draft(x) < target(x)``, else goes on with what is left of both laws.

    After each rejection ``target <- (target - draft)_+`` renormalised; and where siblings were drawn without
    replacement, ``draft <- draft`` without the rejected token, renormalised. If all children are rejected the next
    token comes from the last residual. Accepted tokens followed by a draw from ``emission`` have the target's law.

    Args:
        target: ``nodes + 1`` rows; row 0 is the target's law after the context, row i + 1 after node i.
        proposal: A tree of sampled candidates.
        uniforms: Number i decides node i.

    Raises:
        ForerunError: Candidates were not sampled, or rows, vocabulary or uniforms do not fit the proposal.

    References:
        Miao et al. 2024, arXiv:2305.09781 (SpecInfer: multi-step speculative sampling, with replacement); Chen et al.
        2024, arXiv:2402.12374 (Sequoia, without). One child per node is Leviathan et al. 2023, arXiv:2211.17192,
        Algorithm 1.
    """
    if proposal.candidates is Candidates.DETERMINISTIC:
        raise ForerunError("multi-round sampling needs sampled candidates; verify deterministic ones by target_only")
    without_replacement = proposal.candidates is Candidates.WITHOUT_REPLACEMENT

    def try_siblings(here: Law, siblings: Siblings) -> Trial:
        assert siblings.law is not None, "sampled candidates have a law"
        target_left, draft_left = here, siblings.law
        accepted: int | None = None
        elders_rejected = all_rejected = 1.0  # probabilities
        for place, number in enumerate(siblings.uniforms.tolist()):
            if place > 0:
                target_left = residual_law(target_left, draft_left)
                if without_replacement:
                    draft_left = excluding(draft_left, siblings.token_ids[place - 1 : place])
            token_id = siblings.token_ids[place : place + 1]
            target_prob, draft_prob = float(target_left.prob_of(token_id)), float(draft_left.prob_of(token_id))
            if accepted is None and number * draft_prob < target_prob:
                accepted = place
            elders_rejected = all_rejected
            all_rejected *= 1.0 - min(target_prob / draft_prob, 1.0)
        return Trial(
            verdict=residual_law(target_left, draft_left) if accepted is None else accepted,
            accept_probability=1.0 - all_rejected,
            overlap=1.0 - elders_rejected * (1.0 - float(overlap(target_left, draft_left))),
        )

    return descend(target, proposal, try_siblings, uniforms=uniforms)
