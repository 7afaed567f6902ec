"""A draft tree while it grows, group of siblings by group; knows nothing of where a row of logits comes from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from forerun.distributions import Law, PointLaw, Processing, UnusableLogits, stack_laws
from forerun.verification import ROOT, Candidates, TreeProposal, excluding


@final
class GrowingTree:
    """Nodes so far, and those of the last level, which stand last.

    Args:
        candidates: how siblings are chosen.
    """

    def __init__(self, candidates: Candidates) -> None:
        self._candidates = candidates
        self._laws: list[Law] = []  # of each node's siblings
        self._paths: list[tuple[int, ...]] = []
        self._cut_short = False
        self.token_ids: list[int] = []
        self.parents: list[int] = []
        self.scores: list[float] = []
        """For each node the log-probability of its path."""
        self.leaves: list[int] = [ROOT]

    def grow(
        self,
        parents: Sequence[int],
        logits: Float[Tensor, "parents vocab"],
        counts: Sequence[int],
        processing: Processing,
        uniforms: Float64[Tensor, " nodes"],
    ) -> None:
        """Give children to some leaves: as many as ``counts`` says, or fewer where a law has fewer tokens.

        A leaf whose logits are no law gets no children; that is settled before they are drawn. Number i draws node i.

        Args:
            parents: leaves.
            logits: after each of them.
            counts: of children.
            processing: of the request.
            uniforms: one in [0, 1) for each node of the largest tree.
        """
        paths = [() if parent == ROOT else self._paths[parent] for parent in parents]
        grown: list[int] = []
        for row, law in enumerate(_usable_laws(logits, paths, processing)):
            if law is None:
                self._cut_short = True
                continue
            if self._candidates is Candidates.DETERMINISTIC:
                tokens = most_probable(law, logits[row], counts[row])
            else:
                first = len(self.token_ids)
                tokens = drawn_siblings(law, self._candidates, uniforms=uniforms[first : first + counts[row]])
            above = 0.0 if parents[row] == ROOT else self.scores[parents[row]]
            for token_id, log_prob in zip(tokens, log_probs(law, logits[row], tokens), strict=True):
                grown.append(len(self.token_ids))
                self.token_ids.append(token_id)
                self.parents.append(parents[row])
                self.scores.append(above + log_prob)
                self._paths.append((*paths[row], token_id))
                self._laws.append(law)
        self.leaves = grown

    def best(self, nodes: Sequence[int], count: int) -> list[int]:
        """The ``count`` nodes with the most probable paths, in the order of their numbers; of equals the elder."""
        return sorted(sorted(nodes, key=lambda node: (-self.scores[node], node))[:count])

    def proposal(self, vocab_size: int, *, num_nodes: int | None = None) -> TreeProposal:
        """What has grown.

        Args:
            vocab_size: of the target.
            num_nodes: keep so many nodes, those with the most probable paths, which hold every node's parent; only for
                deterministic candidates, since a drawn token must not decide by its value whether it is tested.
        """
        kept: Sequence[int] = range(len(self.token_ids))
        if num_nodes is not None:
            assert self._candidates is Candidates.DETERMINISTIC
            kept = self.best(kept, num_nodes)
        place = {ROOT: ROOT} | {node: index for index, node in enumerate(kept)}
        token_ids = torch.tensor([self.token_ids[node] for node in kept], dtype=torch.int64)
        law: Law | None = None
        if self._candidates is not Candidates.DETERMINISTIC:
            law = stack_laws(self._laws) if self._laws else PointLaw(token_ids, vocab_size)
        parents = tuple(place[self.parents[node]] for node in kept)
        return TreeProposal(token_ids, parents, self._candidates, law, cut_short=self._cut_short)


def most_probable(law: Law, logits: Float[Tensor, " vocab"], count: int) -> list[int]:
    """The tokens with the highest probabilities under a one-row law, best first; only tokens that it can give.

    A greedy law gives one token only, so there the others follow by their logits.
    """
    if isinstance(law, PointLaw):
        first = int(law.token_ids)
        others = logits.index_fill(-1, law.token_ids, -math.inf).topk(min(count, law.vocab_size) - 1)
        return [first, *others.indices[others.values > -math.inf].tolist()]
    probs, token_ids = law.dense()[0].topk(min(count, law.vocab_size))
    return token_ids[probs > 0.0].tolist()


def log_probs(law: Law, logits: Float[Tensor, " vocab"], token_ids: Sequence[int]) -> list[float]:
    """Of tokens of a one-row law. A greedy law's own token counts as the likeliest, the others go by their logits."""
    if isinstance(law, PointLaw):
        by_logits = logits.double().log_softmax(-1)
        first = int(law.token_ids)
        return [float(by_logits.max() if token_id == first else by_logits[token_id]) for token_id in token_ids]
    values: list[float] = law.dense()[0][list(token_ids)].log().tolist()
    return values


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
