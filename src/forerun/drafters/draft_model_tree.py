"""A smaller model with the same vocabulary as drafter, several continuations at once."""

from __future__ import annotations

from itertools import accumulate
from operator import mul
from typing import final

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from forerun.distributions import Processing
from forerun.drafters.declarations import Dependence, Need, Saving
from forerun.drafters.draft_vocabulary import DraftVocabulary
from forerun.drafters.growing_tree import GrowingTree
from forerun.drafters.small_model import SmallModel
from forerun.drafters.tree import TreeDrafter, TreeDrafterSession
from forerun.errors import ForerunError
from forerun.models import Target
from forerun.verification import Candidates, TreeProposal


@final
class DraftModelTree(TreeDrafter):
    """A small model that drafts trees depth by depth: of one shape, or of the shape that each round asks for.

    Deterministic candidates are the small model's most probable tokens; they cost no draft law and are what a greedy
    target wants. Sampled candidates reach the target's law more often at higher temperatures, and without replacement
    no sibling is wasted.

    Args:
        model: the small model.
        target: the model it drafts for; both must share one tokenizer.
        branching: children of every node at depth 1, 2 and so on; a round of a smaller depth takes the first ones, and
            a horizon policy that shapes trees chooses others of at most this depth.
        candidates: how siblings are chosen.
        vocabulary: the part of the vocabulary that is drafted, see ``DraftModel``.

    Raises:
        ForerunError: the vocabularies differ, or a depth has no children or more siblings than tokens.
    """

    def __init__(
        self,
        model: Target,
        target: Target,
        *,
        branching: tuple[int, ...],
        candidates: Candidates = Candidates.DETERMINISTIC,
        vocabulary: DraftVocabulary | None = None,
    ) -> None:
        self.small = SmallModel(model, target, vocabulary)
        if not branching or any(not 1 <= count <= self.small.num_drafted for count in branching):
            raise ForerunError(
                f"branching is {branching}; give the number of children for each depth, "
                f"each from 1 to the {self.small.num_drafted} tokens of the vocabulary"
            )
        self.branching = branching
        self.candidates = candidates

    @property
    def name(self) -> str:
        """``model-tree:``, the small model's name and the shape."""
        return f"model-tree:{self.small.name}:{'x'.join(map(str, self.branching))}"

    @property
    def max_horizon(self) -> int:
        """Depth of the tree."""
        return len(self.branching)

    @property
    def max_positions(self) -> int | None:
        """The small model's own limit."""
        return self.small.model.max_positions

    def max_nodes(self, depth: int) -> int:
        """Sum over depths of the products of the branching up to there."""
        return sum(accumulate(self.branching[:depth], mul))

    captured_layers = ()  # it reads tokens only
    dependence = Dependence.FULL
    saving = Saving.BOTH
    needs: frozenset[Need] = frozenset()

    def new_session(self) -> DraftModelTreeSession:
        """State for one request."""
        return DraftModelTreeSession(self)


@final
class DraftModelTreeSession(TreeDrafterSession):
    """What the small model has read of one request."""

    def __init__(self, drafter: DraftModelTree) -> None:
        self._drafter = drafter
        self._reader = drafter.small.new_reader()

    @property
    def length(self) -> int:
        """Tokens taken in."""
        return self._reader.length

    def extend(self, token_ids: Int[Tensor, " length"], features: Float[Tensor, "length layers hidden"]) -> None:
        """See :class:`ProposerSession`; features are ignored."""
        self._reader.extend(token_ids)

    def propose_tree(
        self,
        last_token: int,
        depth: int,
        processing: Processing,
        *,
        uniforms: Float64[Tensor, " nodes"],
        branching: tuple[int, ...] | None = None,
    ) -> TreeProposal:
        """See :class:`TreeDrafterSession`; number i draws node i.

        One pass of the small model for each depth. It reads the whole tree so far again, because the cache knows only
        chains between passes. A node whose logits are no law gets no children; that is settled before they are drawn.
        """
        committed = self.length
        logits = self._reader.read_up_to(last_token)
        tree = GrowingTree(self._drafter.candidates)
        first, *deeper = (self._drafter.branching if branching is None else branching)[:depth]
        tree.grow(tree.leaves, logits, [first], processing, uniforms)
        for count in deeper:
            if not tree.leaves:
                break
            self._reader.back_to(committed + 1)
            logits = self._reader.read(
                torch.tensor(tree.token_ids), parents=tuple(tree.parents), num_logits=len(tree.leaves)
            )
            tree.grow(tree.leaves, logits, [count] * len(tree.leaves), processing, uniforms)
        # The drafts may be rejected; the committed tokens come back through extend, so their keys are written again.
        self._reader.back_to(committed)
        return tree.proposal(self._drafter.small.vocab_size)
