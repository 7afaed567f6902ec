"""From words on the command line to a drafter of trees, and to what chooses their shapes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import final

from forerun.cli.draft_vocabulary import pick_vocabulary
from forerun.cli.drafter import pick_drafter
from forerun.drafters import DraftModelTree, Eagle3Network, Eagle3Tree, NetworkDrafter, TreeDrafter
from forerun.errors import ForerunError
from forerun.horizons import HorizonPolicy, TreeAMTP
from forerun.models import TransformersTarget, load_target
from forerun.recipes import ADAPTIVE, horizon_named
from forerun.verification import Candidates, TreeRule

CANDIDATES = {
    "top-k": Candidates.DETERMINISTIC,
    "distinct": Candidates.WITHOUT_REPLACEMENT,
    "independent": Candidates.WITH_REPLACEMENT,
}
DEEPEST = 8
"""Depth of trees of a draft model under a budget, where no shape says it."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TreeWord:
    """What ``--tree`` says; one of the first two, or neither: EAGLE's dynamic tree.

    Attributes:
        max_nodes: a budget; the shape is chosen in each round.
        branching: children of every node, depth by depth.
        dynamic: depth, children and nodes of a dynamic tree; ``None`` for the defaults.
    """

    max_nodes: int | None = None
    branching: tuple[int, ...] | None = None
    dynamic: tuple[int, int, int] | None = None


def read_tree(word: str) -> TreeWord:
    """``24``, ``4x2x1``, ``dynamic`` or ``6x10:59``.

    Raises:
        ForerunError: none of these.
    """
    if re.fullmatch("[0-9]+", word):
        return TreeWord(max_nodes=int(word))
    if re.fullmatch("[0-9]+(x[0-9]+)+", word):
        return TreeWord(branching=tuple(map(int, word.split("x"))))
    if word == "dynamic":
        return TreeWord()
    found = re.fullmatch("([0-9]+)x([0-9]+):([0-9]+)", word)
    if found is None:
        raise ForerunError(
            f"--tree is {word!r}; give a number of nodes (amtp then chooses shapes), children by depth (4x2x1), or "
            "for EAGLE-3 dynamic or DEPTHxCHILDREN:NODES"
        )
    depth, top_k, nodes = map(int, found.groups())
    return TreeWord(dynamic=(depth, top_k, nodes))


def tree_policy(tree: TreeWord, horizon: str, *, rule: TreeRule, lossy: bool) -> int | HorizonPolicy:
    """What ``--horizon`` means for trees: depths; under a budget of nodes, AMTP chooses whole shapes.

    Raises:
        ForerunError: a budget with another policy, or see ``horizon_named``.
    """
    if tree.max_nodes is None:
        return horizon_named(horizon, rule=rule, lossy=lossy)
    if horizon not in (ADAPTIVE, "amtp"):
        raise ForerunError(
            f"--tree {tree.max_nodes} lets amtp choose shapes of so many nodes; with --horizon {horizon} give a shape"
        )
    return TreeAMTP(max_nodes=tree.max_nodes)


def pick_tree_drafter(
    word: str,
    tree: TreeWord,
    candidates: str,
    target: TransformersTarget,
    *,
    optimize: bool,
    draft_vocab: str | None = None,
) -> TreeDrafter:
    """A small model or an EAGLE-3 checkpoint that drafts trees.

    Args:
        word: ``model:NAME``, a drafter folder, or ``auto``.
        tree: the shape.
        candidates: one of ``CANDIDATES``.
        target: that it drafts for.
        optimize: lay weights out for narrow passes.
        draft_vocab: see ``pick_drafter``.

    Raises:
        ForerunError: a drafter of chains, a shape of the other kind of drafter, unknown candidates, or see
            ``pick_drafter``, ``DraftModelTree`` and ``Eagle3Tree``.
    """
    if candidates not in CANDIDATES:
        raise ForerunError(f"--tree-candidates is {candidates!r}; choose one of {', '.join(CANDIDATES)}")
    siblings = CANDIDATES[candidates]
    if word.startswith("model:"):
        if tree.max_nodes is None and tree.branching is None:
            raise ForerunError(
                "dynamic trees are EAGLE-3's; for a draft model give children by depth (4x2x1) or a number of nodes"
            )
        small = load_target(word.removeprefix("model:"), optimize=optimize)
        vocabulary = None if draft_vocab is None else pick_vocabulary(draft_vocab, target)
        branching = tree.branching or (1,) * min(tree.max_nodes or 1, DEEPEST)
        return DraftModelTree(small, target, branching=branching, candidates=siblings, vocabulary=vocabulary)
    drafter = pick_drafter(word, target, optimize=optimize, draft_vocab=draft_vocab)
    if not isinstance(drafter, NetworkDrafter) or not isinstance(drafter.network, Eagle3Network):
        name = "none" if drafter is None else drafter.name
        raise ForerunError(f"--tree needs an EAGLE-3 drafter or model:NAME; {name} drafts no trees")
    if tree.branching is not None:
        raise ForerunError(
            "children by depth are for a draft model; for EAGLE-3 give dynamic, DEPTHxCHILDREN:NODES or a budget"
        )
    if tree.dynamic is not None:
        depth, top_k, nodes = tree.dynamic
        return Eagle3Tree(drafter, depth=depth, top_k=top_k, num_nodes=nodes, candidates=siblings)
    top_k = min(10, drafter.config.draft_vocab_size)
    return Eagle3Tree(drafter, top_k=top_k, candidates=siblings)
