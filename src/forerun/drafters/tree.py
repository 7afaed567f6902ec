"""What the engine asks of anything that proposes several continuations at once."""

from __future__ import annotations

from abc import abstractmethod

from jaxtyping import Float
from torch import Tensor

from forerun.distributions import Processing
from forerun.drafters.drafter import Proposer, ProposerSession
from forerun.verification import TreeProposal


class TreeDrafterSession(ProposerSession):
    """The drafter's state for one request."""

    @abstractmethod
    def propose_tree(
        self,
        last_token: int,
        depth: int,
        processing: Processing,
        *,
        uniforms: Float[Tensor, " nodes"],
        branching: tuple[int, ...] | None = None,
    ) -> TreeProposal:
        """Draft a tree of at most ``depth`` tokens in a row after ``last_token``.

        Args:
            last_token: committed, not yet processed by the target; position ``length``.
            depth: at least 1 and at most the drafter's maximum. A shallower tree may come back; how much of it is
                missing must not depend on the tokens that are left out.
            processing: of draft logits; the proposal carries the processed law.
            uniforms: one in [0, 1) for each node of the tree that is asked for, or of the largest of this depth.
            branching: children of every node at depth 1, 2, ..., ``depth``: this very tree, wherever laws have so many
                tokens. ``None`` leaves the shape to the drafter.
        """


class TreeDrafter(Proposer):
    """Something that proposes trees. ``new_session`` starts one request."""

    @abstractmethod
    def max_nodes(self, depth: int) -> int:
        """Nodes of its largest tree of this depth."""

    @abstractmethod
    def new_session(self) -> TreeDrafterSession:
        """State for one request."""
