"""The seam at which acceptance rules for trees are exchanged."""

from abc import abstractmethod

from jaxtyping import Float64
from torch import Tensor

from forerun.distributions import Law
from forerun.verification.rule import AnyRule
from forerun.verification.tree_outcome import TreeOutcome
from forerun.verification.tree_proposal import TreeProposal


class TreeRule(AnyRule):
    """Decides which path of a tree of draft tokens stands."""

    @abstractmethod
    def verify(self, target: Law, proposal: TreeProposal, *, uniforms: Float64[Tensor, " nodes"]) -> TreeOutcome:
        """Tests a proposal.

        Args:
            target: ``nodes + 1`` rows; row 0 is the target's law after the context, row i + 1 after node i.
            proposal: The tree and the law it was drawn from.
            uniforms: One fresh number in [0, 1) per node, shared with no other decision.

        Raises:
            ForerunError: Rows, vocabulary or uniforms do not fit the proposal.
        """
