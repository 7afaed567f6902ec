"""Trees verified by agreement: the target draws its own token, and a child that has it stands."""

from typing import final

from jaxtyping import Float64
from torch import Tensor

from forerun.distributions import Law, PointLaw
from forerun.verification.coincidence import coincidence
from forerun.verification.descent import Siblings, Trial, descend
from forerun.verification.rule import Truncation
from forerun.verification.tree_outcome import TreeOutcome
from forerun.verification.tree_proposal import TreeProposal
from forerun.verification.tree_rule import TreeRule


def tree_agreement(target: Law, proposal: TreeProposal, *, uniforms: Float64[Tensor, " nodes"]) -> TreeOutcome:
    """At each node draws the target's own token and accepts the first child that has it; else that token comes next.

    Every token is a fresh draw from the target, so the output law is the target's for every tree that does not look
    at the target's outputs or the uniforms, trees pruned after a look at their tokens included. No draft law is
    needed. A child x is accepted with probability ``target(x)``, as by ``target_only``.

    Args:
        target: ``nodes + 1`` rows; row 0 is the target's law after the context, row i + 1 after node i.
        proposal: A tree of any candidates.
        uniforms: The number of a first child draws the target's token for it and all its siblings.

    Raises:
        ForerunError: Rows, vocabulary or uniforms do not fit the proposal.

    References:
        The naive sampling to which Miao et al. 2024, arXiv:2305.09781, compare multi-step speculative sampling.
    """

    def try_siblings(here: Law, siblings: Siblings) -> Trial:
        chosen = here.sample(uniforms=siblings.uniforms[:1])
        matches = (siblings.token_ids == chosen.to(siblings.token_ids.device)).nonzero()
        verdict = int(matches[0, 0]) if len(matches) else PointLaw(chosen, here.vocab_size)
        return Trial(verdict, *coincidence(here, siblings, proposal.candidates))

    return descend(target, proposal, try_siblings, uniforms=uniforms)


@final
class TreeAgreement(TreeRule):
    """``tree_agreement`` as a rule."""

    @property
    def name(self) -> str:
        """``tree agreement``."""
        return "tree agreement"

    @property
    def exact(self) -> bool:
        """Yes, for every tree."""
        return True

    @property
    def needs_draft_law(self) -> bool:
        """No."""
        return False

    @property
    def truncation(self) -> Truncation:
        """Any: what comes out is drawn afresh, so there is nothing to select on."""
        return Truncation.ANY_DRAFT

    def verify(self, target: Law, proposal: TreeProposal, *, uniforms: Float64[Tensor, " nodes"]) -> TreeOutcome:
        """See ``tree_agreement``."""
        return tree_agreement(target, proposal, uniforms=uniforms)
