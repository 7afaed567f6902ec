"""Speculative sampling on trees, each kind of candidates with the test that fits it."""

from typing import final

from jaxtyping import Float64
from torch import Tensor

from forerun.distributions import Law
from forerun.verification.candidates import Candidates
from forerun.verification.multi_round import multi_round
from forerun.verification.rule import Truncation
from forerun.verification.target_only import target_only
from forerun.verification.tree_outcome import TreeOutcome
from forerun.verification.tree_proposal import TreeProposal
from forerun.verification.tree_rule import TreeRule


@final
class TreeTokenLevel(TreeRule):
    """``target_only`` for deterministic candidates, ``multi_round`` for sampled ones.

    On a tree with one child per node this is ``token_level``, with a ``PointLaw`` for deterministic candidates.
    """

    @property
    def name(self) -> str:
        """``tree token-level``."""
        return "tree token-level"

    @property
    def exact(self) -> bool:
        """Yes, for every tree."""
        return True

    @property
    def needs_draft_law(self) -> bool:
        """Yes, for sampled candidates."""
        return True

    @property
    def truncation(self) -> Truncation:
        """Sampled siblings must not be looked at before; of deterministic ones any may be dropped."""
        return Truncation.BEFORE_DRAWING

    def verify(self, target: Law, proposal: TreeProposal, *, uniforms: Float64[Tensor, " nodes"]) -> TreeOutcome:
        """See ``target_only`` and ``multi_round``."""
        test = target_only if proposal.candidates is Candidates.DETERMINISTIC else multi_round
        return test(target, proposal, uniforms=uniforms)
