"""What a drafter hands over when it proposes several continuations at once: a tree, and where its tokens came from."""

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Int64
from torch import Tensor

from forerun.distributions import Law
from forerun.errors import ForerunError
from forerun.verification.candidates import Candidates

ROOT = -1
"""Parent of the children of the last committed token."""


@dataclass(frozen=True)
class TreeProposal:
    """A tree of draft tokens. Siblings stand in the order in which they were drawn (or ranked).

    The shape of the tree may depend on the context and, below a node, on the tokens of that node's path: whether a
    group of siblings is drawn, and how large it is, must be decided before its tokens and must not look at other
    branches' fate.

    Attributes:
        token_ids: One token per node, a parent before its children; there may be none.
        parents: For each node the node before it, -1 for the children of the last committed token.
        candidates: How siblings were chosen.
        law: One row per node: the law from which the first of its siblings was drawn, after all processing, the same
            row for all siblings. ``None`` for deterministic candidates.
        cut_short: A row of the drafter's logits was no law (NaN, say), so its node got no children.

    Raises:
        ForerunError: A child stands before its parent, an id lies outside the vocabulary, deterministic candidates
            come with a law or sampled ones without, or siblings cannot have been drawn in the way that is claimed.
    """

    token_ids: Int64[Tensor, " nodes"]
    parents: tuple[int, ...]
    candidates: Candidates
    law: Law | None
    cut_short: bool = False

    def __post_init__(self) -> None:
        """Refuses what is no tree, and tokens that the law cannot have produced."""
        nodes = len(self)
        if len(self.parents) != nodes:
            raise ForerunError(f"tree has {nodes} tokens but {len(self.parents)} parents; give one each")
        for node, parent in enumerate(self.parents):
            if not ROOT <= parent < node:
                raise ForerunError(
                    f"node {node} has parent {parent}; a parent is an earlier node, or -1 for the last committed token"
                )
        if bool((self.token_ids < 0).any()):
            raise ForerunError(f"tree has tokens {self.token_ids.tolist()}; ids start at 0")
        if (self.law is None) != (self.candidates is Candidates.DETERMINISTIC):
            raise ForerunError(
                f"candidates are {self.candidates.value} and the law is {'missing' if self.law is None else 'given'}; "
                "sampled candidates need the law they were drawn from, deterministic ones have none"
            )
        if self.candidates is not Candidates.WITH_REPLACEMENT:
            self._check_siblings_differ()
        if self.law is not None:
            self._check_drawn_from(self.law)

    def __len__(self) -> int:
        """Number of nodes."""
        return self.token_ids.shape[0]

    @cached_property
    def children(self) -> dict[int, tuple[int, ...]]:
        """Nodes that have children, and those children in order; -1 stands for the last committed token."""
        found: defaultdict[int, tuple[int, ...]] = defaultdict(tuple)
        for node, parent in enumerate(self.parents):
            found[parent] += (node,)
        return dict(found)

    @cached_property
    def paths(self) -> tuple[tuple[int, ...], ...]:
        """For each node the draft tokens up to it, its own included."""
        found: list[tuple[int, ...]] = []
        for token_id, parent in zip(self.token_ids.tolist(), self.parents, strict=True):
            found.append((*(() if parent == ROOT else found[parent]), token_id))
        return tuple(found)

    @property
    def depth(self) -> int:
        """Most tokens that can be accepted."""
        return max((len(path) for path in self.paths), default=0)

    def _check_siblings_differ(self) -> None:
        token_ids = self.token_ids.tolist()
        for siblings in self.children.values():
            tokens = [token_ids[node] for node in siblings]
            if len(set(tokens)) != len(tokens):
                raise ForerunError(
                    f"siblings {list(siblings)} have tokens {tokens}; only candidates drawn with replacement may repeat"
                )

    def _check_drawn_from(self, law: Law) -> None:
        if len(law) != len(self):
            raise ForerunError(f"tree has {len(self)} tokens but a law of {len(law)} rows; give one each")
        if not bool((self.token_ids < law.vocab_size).all()):
            raise ForerunError(
                f"tree has tokens {self.token_ids.tolist()}; they do not all lie in a vocabulary of {law.vocab_size}"
            )
        token_ids = self.token_ids.to(law.device)
        probs = law.prob_of(token_ids)
        if not bool((probs > 0.0).all()):
            node = int((probs <= 0.0).nonzero()[0, 0])
            raise ForerunError(
                f"draft token {int(token_ids[node])} of node {node} has probability 0 under the proposal's law; "
                "hand over the law that was sampled, after all processing"
            )
        # Rows shifted against their nodes would bias the result unseen: siblings agree on the first one's probability.
        eldest = torch.tensor([self.children[parent][0] for parent in self.parents], dtype=torch.int64).to(law.device)
        if not bool((law.prob_of(token_ids[eldest]) == probs[eldest]).all()):
            raise ForerunError("siblings have different laws; repeat the row of a group's law for each of its nodes")
