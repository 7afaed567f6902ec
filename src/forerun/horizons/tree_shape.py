"""Width and depth of a draft tree: a pure function of numbers known before drafting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from operator import mul
from typing import NamedTuple

import numpy as np

from forerun.errors import ForerunError


class TreeShape(NamedTuple):
    """What a search found.

    Attributes:
        branching: children of every node at depth 1, 2 and so on; empty drafts nothing, all ones is a chain.
        nodes: in all.
        tokens: expected number committed, the correction or bonus included.
        seconds: of the round.
    """

    branching: tuple[int, ...]
    nodes: int
    tokens: float
    seconds: float


def num_nodes(branching: Sequence[int]) -> int:
    """Nodes of a tree in which every node has as many children: b_1 + b_1 b_2 + ...

    Example:
        >>> num_nodes((3, 2))
        9
    """
    return sum(accumulate(branching, mul))


def doubled_chain(depth: int, max_nodes: int) -> tuple[int, ...]:
    """The full depth, and two children a node from the top down as far as the budget allows.

    Example:
        >>> doubled_chain(3, 10), doubled_chain(3, 9)
        ((2, 2, 1), (2, 1, 1))
    """
    shapes = ((2,) * doubled + (1,) * (depth - doubled) for doubled in range(depth, -1, -1))
    return next(shape for shape in shapes if num_nodes(shape) <= max_nodes)


def sibling_hazard(hazard: float, siblings: int, *, sibling_share: float) -> float:
    """P(no sibling of several is accepted | their parent is): prod over i < b of (1 - (1 - h) share^i).

    The i-th sibling, tried when those before it were rejected, is accepted `share` times as often as the one before.

    Example:
        >>> sibling_hazard(0.5, 2, sibling_share=0.5)
        0.375
    """
    rejected, accept = 1.0, 1.0 - hazard
    for _ in range(siblings):
        rejected *= 1.0 - accept
        accept *= sibling_share
    return rejected


def best_tree(
    hazards: Sequence[float],
    verify_seconds: Sequence[float],
    *,
    draft_seconds: Sequence[float] | None = None,
    sibling_share: float = 0.5,
    max_children: int = 8,
) -> TreeShape:
    """The branching that maximises expected tokens over cost, from the hazards of a chain.

    See `best_shape`; what several siblings are worth comes from `sibling_hazard`.

    Args:
        hazards: of depth 1, 2, ..., as for a chain: h_j = P(first candidate at j fails | j - 1 stands).
        verify_seconds: of a pass with 0, 1, ..., N nodes besides the last committed token; its length is the budget.
        draft_seconds: of drafting 0, 1, ... depths; None where it costs nothing.
        sibling_share: see `sibling_hazard`; 1 for independent siblings, less where the first candidates are the best.
        max_children: of a node.

    Raises:
        ForerunError: no verify costs, too few draft costs, or a number out of range.

    Example:
        >>> best_tree([0.1, 0.1, 0.1], [1.0 + 0.01 * n for n in range(9)]).branching
        (2, 1, 1)
        >>> best_tree([0.6, 0.6], [1.0 + 0.01 * n for n in range(9)]).branching
        (3, 1)
    """
    if not 0.0 <= sibling_share <= 1.0 or max_children < 1 or not all(0.0 <= hazard <= 1.0 for hazard in hazards):
        raise ForerunError("hazards and sibling_share must be in [0, 1] and max_children at least 1")
    accepts = [
        [1.0 - sibling_hazard(hazard, count, sibling_share=sibling_share) for count in range(max_children + 1)]
        for hazard in hazards
    ]
    return best_shape(
        np.array(accepts).reshape(len(hazards), max_children + 1), verify_seconds, draft_seconds=draft_seconds
    )


def best_shape(
    accepts: np.ndarray, verify_seconds: Sequence[float], *, draft_seconds: Sequence[float] | None = None
) -> TreeShape:
    """The branching b_1, b_2, ... that maximises expected tokens over cost, under a budget of nodes.

    With A_j(b) the chance that one of b siblings at depth j is accepted given that depth j - 1 was, the expected number
    of accepted drafts of a tree in which every node at depth j - 1 has b_j children is

        A_1(b_1) + A_1(b_1) A_2(b_2) + A_1(b_1) A_2(b_2) A_3(b_3) + ...

    because exactly one path is followed. Its nodes are b_1 + b_1 b_2 + ..., each level the width of the last times b.
    Since widths multiply, few branchings fit a budget (609 for 24 nodes and 7 depths of up to 8 children), and all of
    them are priced: no assumption on the costs. The tree is fixed before drafting, so every exact tree rule keeps the
    law. Ties go to fewer nodes, then to fewer depths, then to fewer children at the top.

    Args:
        accepts: (depths, children + 1), A_j(b); the column for no children is not read.
        verify_seconds: of a pass with 0, 1, ..., N nodes besides the last committed token; its length is the budget.
            Infinity means "never choose that many".
        draft_seconds: of drafting 0, 1, ... depths; None where it costs nothing.

    Raises:
        ForerunError: no verify costs, none of them finite, or too few draft costs.

    References:
        AMTP names trees as future work; the search is ours. Sequoia (arXiv:2402.12374) solves the related problem of
        unequal subtrees for fixed acceptance rates.
    """
    depths, choices = accepts.shape
    if len(verify_seconds) == 0 or min(verify_seconds) <= 0.0:
        raise ForerunError("a tree's shape needs verify costs above 0, that of no nodes first")
    if draft_seconds is not None and len(draft_seconds) <= depths:
        raise ForerunError(f"{depths} depths need {depths + 1} draft costs, got {len(draft_seconds)}")
    table = _branchings(len(verify_seconds) - 1, depths, choices - 1)
    chances = np.where(table.children > 0, accepts[np.arange(depths), table.children], 0.0)
    tokens = 1.0 + np.cumprod(chances, axis=1).sum(axis=1)
    seconds = np.asarray(verify_seconds)[table.nodes]
    if draft_seconds is not None:
        seconds = seconds + np.asarray(draft_seconds)[table.depths]
    rates = tokens / seconds
    if not rates.max() > 0.0:
        raise ForerunError("no tree has a finite cost: measure at least one")
    best = int((rates >= rates.max() * (1.0 - 1e-12)).argmax())
    return TreeShape(table.branchings[best], int(table.nodes[best]), float(tokens[best]), float(seconds[best]))


class _Table(NamedTuple):
    """All branchings under a budget, those with fewer nodes first.

    Attributes:
        branchings: as tuples.
        children: the same with zeros behind them, (branchings, depths).
        nodes: of each.
        depths: of each.
    """

    branchings: list[tuple[int, ...]]
    children: np.ndarray
    nodes: np.ndarray
    depths: np.ndarray


@lru_cache(maxsize=64)
def _branchings(max_nodes: int, depths: int, max_children: int) -> _Table:
    def grown(shape: tuple[int, ...], width: int, left: int) -> Iterator[tuple[int, ...]]:
        yield shape
        if len(shape) < depths:
            for children in range(1, min(max_children, left // width) + 1):
                level = width * children
                yield from grown((*shape, children), level, left - level)

    found = sorted(grown((), 1, max_nodes), key=lambda shape: (num_nodes(shape), len(shape), shape))
    children = np.zeros((len(found), depths), dtype=np.int64)
    for row, shape in enumerate(found):
        children[row, : len(shape)] = shape
    nodes = np.array([num_nodes(shape) for shape in found])
    return _Table(found, children, nodes, np.array([len(shape) for shape in found]))
