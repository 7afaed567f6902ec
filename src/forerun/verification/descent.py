"""The way down a tree: at each node its children are tried, and the accepted one is the next node.

What it means to try siblings is the rule's business; this file refuses to know.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from forerun.distributions import Law, check_uniforms
from forerun.errors import ForerunError
from forerun.verification.tree_outcome import TreeOutcome
from forerun.verification.tree_proposal import ROOT, TreeProposal


@dataclass(frozen=True)
class Siblings:
    """The children of one node.

    Attributes:
        token_ids: In the order in which they are tried.
        law: One row: the law from which the first was drawn; ``None`` for deterministic candidates.
        uniforms: One number for each.
    """

    token_ids: Int64[Tensor, " siblings"]
    law: Law | None
    uniforms: Float64[Tensor, " siblings"]


@dataclass(frozen=True)
class Trial:
    """What became of siblings.

    Attributes:
        verdict: Place of the accepted sibling, or the one-row law of the token that comes instead.
        accept_probability: That some sibling is accepted, over the uniforms.
        overlap: The same averaged over the last sibling's draw too.
    """

    verdict: int | Law
    accept_probability: float
    overlap: float


def descend(
    target: Law,
    proposal: TreeProposal,
    try_siblings: Callable[[Law, Siblings], Trial],
    *,
    uniforms: Float64[Tensor, " nodes"],
) -> TreeOutcome:
    """Tries siblings from the root down until all of a group are rejected or a leaf is accepted.

    Args:
        target: ``nodes + 1`` rows; row 0 is the target's law after the context, row i + 1 after node i.
        proposal: The tree.
        try_siblings: Tests one group against the one-row law of the target after its parent.
        uniforms: One number per node.

    Raises:
        ForerunError: Rows, vocabulary or uniforms do not fit the proposal.
    """
    _check_fit(target, proposal)
    check_uniforms(uniforms, len(proposal))
    path: list[int] = []
    trials: list[Trial] = []
    node = ROOT
    while True:
        here = target.rows(node + 1, node + 2)
        if node not in proposal.children:
            emission = here
            break
        nodes = list(proposal.children[node])
        law = None if proposal.law is None else proposal.law.rows(nodes[0], nodes[0] + 1)
        trial = try_siblings(here, Siblings(proposal.token_ids[nodes], law, uniforms[nodes]))
        trials.append(trial)
        if isinstance(trial.verdict, Law):
            emission = trial.verdict
            break
        node = nodes[trial.verdict]
        path.append(node)
    return TreeOutcome(
        path=tuple(path),
        emission=emission,
        accept_probabilities=torch.tensor([trial.accept_probability for trial in trials], dtype=torch.float64),
        overlaps=torch.tensor([trial.overlap for trial in trials], dtype=torch.float64),
    )


def _check_fit(target: Law, proposal: TreeProposal) -> None:
    if len(target) != len(proposal) + 1:
        raise ForerunError(
            f"target law has {len(target)} rows; a tree of {len(proposal)} nodes needs one more than that"
        )
    if proposal.law is not None and proposal.law.vocab_size != target.vocab_size:
        raise ForerunError(
            f"target law is over {target.vocab_size} tokens and the draft's over {proposal.law.vocab_size}; "
            "they must be over the same"
        )
    if not bool((proposal.token_ids < target.vocab_size).all()):
        raise ForerunError(
            f"tree has tokens {proposal.token_ids.tolist()}; they do not all lie in a vocabulary of {target.vocab_size}"
        )
