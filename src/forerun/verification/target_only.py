"""Children tried with the target's probabilities alone."""

from typing import final

from jaxtyping import Float64
from torch import Tensor

from forerun.distributions import Law
from forerun.verification.coincidence import coincidence, probabilities_of_first
from forerun.verification.descent import Siblings, Trial, descend
from forerun.verification.exclusion import excluding
from forerun.verification.rule import Truncation
from forerun.verification.tree_outcome import TreeOutcome
from forerun.verification.tree_proposal import TreeProposal
from forerun.verification.tree_rule import TreeRule


def target_only(target: Law, proposal: TreeProposal, *, uniforms: Float64[Tensor, " nodes"]) -> TreeOutcome:
    """At each node accepts child x with probability ``left(x)``, else sets ``left(x)`` to 0 and renormalises.

    ``left`` begins as the target's law after the node, and is the law of the next token if all children are rejected.
    Child x is so accepted with probability ``target(x)`` in all, whatever the tokens of the others: accepted tokens
    followed by a draw from ``emission`` have the target's law for every tree that does not look at the target's
    outputs or the uniforms, sampled trees and trees pruned after a look at their tokens included. The test of a
    sampled draft, ``min(1, target / draft)``, would be wrong here: a token chosen with certainty has draft
    probability 1, not the one it has in the law it was chosen by.

    Args:
        target: ``nodes + 1`` rows; row 0 is the target's law after the context, row i + 1 after node i.
        proposal: A tree of any candidates; a repeated sibling is rejected with certainty.
        uniforms: Number i decides node i.

    Raises:
        ForerunError: Rows, vocabulary or uniforms do not fit the proposal.

    Example:
        >>> import torch
        >>> from forerun.distributions import DenseLaw
        >>> from forerun.verification import Candidates
        >>> target = DenseLaw(torch.tensor([[0.5, 0.25, 0.25]] * 3))
        >>> tree = TreeProposal(torch.tensor([0, 1]), (-1, -1), Candidates.DETERMINISTIC, None)
        >>> numbers = torch.tensor([0.5, 0.25], dtype=torch.float64)  # 0.5 is not below 1/2; 0.25 is
        >>> target_only(target, tree, uniforms=numbers).path
        (1,)

    References:
        The default for trees in SGLang (``tree_speculative_sampling_target_only``).
    """

    def try_siblings(here: Law, siblings: Siblings) -> Trial:
        accept_probability, overlap = coincidence(here, siblings, proposal.candidates)
        verdict: int | Law | None = None
        mass_left = 1.0
        for place, prob in enumerate(probabilities_of_first(here, siblings)):
            if float(siblings.uniforms[place]) * mass_left < prob:
                verdict = place
                break
            mass_left -= prob  # stays above 0, for a rejection says u * mass_left >= prob with u below 1
        else:
            verdict = excluding(here, siblings.token_ids)
        return Trial(verdict, accept_probability, overlap)

    return descend(target, proposal, try_siblings, uniforms=uniforms)


@final
class TargetOnly(TreeRule):
    """``target_only`` as a rule."""

    @property
    def name(self) -> str:
        """``target-only``."""
        return "target-only"

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
        """Any: given the tree, whatever it is, the output law is the target's."""
        return Truncation.ANY_DRAFT

    def verify(self, target: Law, proposal: TreeProposal, *, uniforms: Float64[Tensor, " nodes"]) -> TreeOutcome:
        """See ``target_only``."""
        return target_only(target, proposal, uniforms=uniforms)
