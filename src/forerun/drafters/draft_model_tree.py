"""A smaller model with the same vocabulary as drafter, several continuations at once."""

from __future__ import annotations

import math
from itertools import accumulate
from operator import mul
from typing import final

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from forerun.distributions import Law, PointLaw, Processing, UnusableLogits, stack_laws
from forerun.drafters.declarations import Dependence, Need, Saving
from forerun.drafters.draft_vocabulary import DraftVocabulary
from forerun.drafters.small_model import SmallModel
from forerun.drafters.tree import TreeDrafter, TreeDrafterSession
from forerun.errors import ForerunError
from forerun.models import Target
from forerun.verification import ROOT, Candidates, TreeProposal, excluding


@final
class DraftModelTree(TreeDrafter):
    """A small model that drafts a tree of fixed shape, depth by depth.

    Deterministic candidates are the small model's most probable tokens; they cost no draft law and are what a greedy
    target wants. Sampled candidates reach the target's law more often at higher temperatures, and without replacement
    no sibling is wasted.

    Args:
        model: the small model.
        target: the model it drafts for; both must share one tokenizer.
        branching: children of every node at depth 1, 2 and so on; a round of a smaller depth takes the first ones.
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
    def captured_layers(self) -> tuple[int, ...]:
        """None: it reads tokens only."""
        return ()

    @property
    def max_positions(self) -> int | None:
        """The small model's own limit."""
        return self.small.model.max_positions

    def max_nodes(self, depth: int) -> int:
        """Sum over depths of the products of the branching up to there."""
        return sum(accumulate(self.branching[:depth], mul))

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
        self, last_token: int, depth: int, processing: Processing, *, uniforms: Float64[Tensor, " nodes"]
    ) -> TreeProposal:
        """See :class:`TreeDrafterSession`; number i draws node i.

        One pass of the small model for each depth. It reads the whole tree so far again, because the cache knows only
        chains between passes. A node whose logits are no law gets no children; that is settled before they are drawn.
        """
        committed = self.length
        logits = self._reader.read_up_to(last_token)
        tree = _GrowingTree(self._drafter.candidates)
        tree.grow(logits, self._drafter.branching[0], processing, uniforms)
        for count in self._drafter.branching[1:depth]:
            if not tree.leaves:
                break
            self._reader.back_to(committed + 1)
            logits = self._reader.read(
                torch.tensor(tree.token_ids), parents=tuple(tree.parents), num_logits=len(tree.leaves)
            )
            tree.grow(logits, count, processing, uniforms)
        # The drafts may be rejected; the committed tokens come back through extend, so their keys are written again.
        self._reader.back_to(committed)
        return tree.proposal(self._drafter.small.vocab_size)


@final
class _GrowingTree:
    """Nodes so far, and those of the last level, which stand last."""

    def __init__(self, candidates: Candidates) -> None:
        self._candidates = candidates
        self._laws: list[Law] = []  # of each node's siblings
        self._paths: list[tuple[int, ...]] = []
        self._cut_short = False
        self.token_ids: list[int] = []
        self.parents: list[int] = []
        self.leaves: list[int] = [ROOT]

    def grow(
        self,
        logits: Float[Tensor, "leaves vocab"],
        count: int,
        processing: Processing,
        uniforms: Float64[Tensor, " nodes"],
    ) -> None:
        """Give ``count`` children to every leaf, or fewer where its law has fewer tokens."""
        paths = [() if leaf == ROOT else self._paths[leaf] for leaf in self.leaves]
        grown: list[int] = []
        for row, law in enumerate(_usable_laws(logits, paths, processing)):
            if law is None:
                self._cut_short = True
                continue
            if self._candidates is Candidates.DETERMINISTIC:
                tokens = most_probable(law, logits[row], count)
            else:
                first = len(self.token_ids)
                tokens = drawn_siblings(law, self._candidates, uniforms=uniforms[first : first + count])
            for token_id in tokens:
                grown.append(len(self.token_ids))
                self.token_ids.append(token_id)
                self.parents.append(self.leaves[row])
                self._paths.append((*paths[row], token_id))
                self._laws.append(law)
        self.leaves = grown

    def proposal(self, vocab_size: int) -> TreeProposal:
        """What has grown."""
        token_ids = torch.tensor(self.token_ids, dtype=torch.int64)
        law: Law | None = None
        if self._candidates is not Candidates.DETERMINISTIC:
            law = stack_laws(self._laws) if self._laws else PointLaw(token_ids, vocab_size)
        return TreeProposal(token_ids, tuple(self.parents), self._candidates, law, cut_short=self._cut_short)


def most_probable(law: Law, logits: Float[Tensor, " vocab"], count: int) -> list[int]:
    """The tokens with the highest probabilities under a one-row law, best first; only tokens that it can give.

    A greedy law gives one token only, so there the others follow by their logits.
    """
    if isinstance(law, PointLaw):
        first = int(law.token_ids)
        others = logits.index_fill(-1, law.token_ids, -math.inf).topk(count - 1).indices.tolist()
        return [first, *others]
    probs, token_ids = law.dense()[0].topk(count)
    return token_ids[probs > 0.0].tolist()


def drawn_siblings(law: Law, candidates: Candidates, *, uniforms: Float64[Tensor, " count"]) -> list[int]:
    """Draws from a one-row law, with or without replacement; without, at most as many as it has tokens."""
    tokens: list[Tensor] = []
    left = law
    possible = int((law.dense() > 0.0).sum())
    for number in uniforms.split(1):
        if candidates is Candidates.WITHOUT_REPLACEMENT and tokens:
            if len(tokens) == possible:
                break
            left = excluding(left, tokens[-1])
        tokens.append(left.sample(uniforms=number))
    return [int(token_id) for token_id in tokens]


def _usable_laws(
    logits: Float[Tensor, "rows vocab"], paths: list[tuple[int, ...]], processing: Processing
) -> list[Law | None]:
    """The law of each row, ``None`` where the logits are none."""
    laws: list[Law | None] = [None] * len(paths)
    rows = list(range(len(paths)))
    while rows:
        try:
            law = processing.law_of_paths(logits[rows], [paths[row] for row in rows])
        except UnusableLogits as error:
            del rows[error.row]
            continue
        for place, row in enumerate(rows):
            laws[row] = law.rows(place, place + 1)
        break
    return laws
