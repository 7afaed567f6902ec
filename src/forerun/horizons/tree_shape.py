"""Width and depth of a draft tree from the hazards of a chain: a pure function of numbers known before drafting."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from forerun.errors import ForerunError


class TreeShape(NamedTuple):
    """What `best_tree` found.

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
    """The branching b_1, b_2, ... that maximises expected tokens over cost, under a budget of nodes.

    With A_j(b) = 1 - `sibling_hazard` the chance that one of b siblings at depth j is accepted given that depth j - 1
    was, the expected number of accepted drafts of a tree in which every node at depth j - 1 has b_j children is

        A_1(b_1) (1 + A_2(b_2) (1 + A_3(b_3) (1 + ...))),

    because exactly one path is followed. Its nodes are b_1 + b_1 b_2 + ..., each level the width of the last times b.
    So with F(j, w, r) the most that depths j, j + 1, ... can add below a level of width w with r nodes left,

        F(j, w, r) = max(0, max over b with w b <= r of A_j(b) (1 + F(j + 1, w b, r - w b))),

    and 1 + F(1, 1, N) is the best gain of at most N nodes. All N, and all depths where drafting is paid by depth, are
    priced: no assumption on the costs. The tree is fixed before drafting, so every exact tree rule keeps the law.
    Ties go to fewer nodes, then to fewer depths.

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

    References:
        AMTP names trees as future work; the recursion is ours. Sequoia (arXiv:2402.12374) solves the related problem of
        unequal subtrees for fixed acceptance rates.
    """
    if not verify_seconds or min(verify_seconds) <= 0.0:
        raise ForerunError("best_tree needs verify costs above 0, that of no nodes first")
    if draft_seconds is not None and len(draft_seconds) <= len(hazards):
        raise ForerunError(f"{len(hazards)} depths need {len(hazards) + 1} draft costs, got {len(draft_seconds)}")
    if not 0.0 <= sibling_share <= 1.0 or max_children < 1 or not all(0.0 <= hazard <= 1.0 for hazard in hazards):
        raise ForerunError("hazards and sibling_share must be in [0, 1] and max_children at least 1")
    accepts = [
        [1.0 - sibling_hazard(hazard, count, sibling_share=sibling_share) for count in range(max_children + 1)]
        for hazard in hazards
    ]

    @cache
    def below(depth: int, width: int, left: int, deepest: int) -> tuple[float, tuple[int, ...]]:
        """Most expected accepted drafts from this depth on, and the branching that gives them."""
        best: tuple[float, tuple[int, ...]] = (0.0, ())
        if depth == deepest:
            return best
        for children in range(1, min(max_children, left // width) + 1):
            level = width * children
            gain, shape = below(depth + 1, level, left - level, deepest)
            value = accepts[depth][children] * (1.0 + gain)
            if value > best[0]:
                best = value, (children, *shape)
        return best

    found = TreeShape((), 0, 1.0, verify_seconds[0] + (draft_seconds[0] if draft_seconds is not None else 0.0))
    depths = range(1, len(hazards) + 1) if draft_seconds is not None else (len(hazards),)
    for budget in range(1, len(verify_seconds)):
        for deepest in depths:
            gain, branching = below(0, 1, budget, deepest)
            seconds = verify_seconds[budget] + (draft_seconds[deepest] if draft_seconds is not None else 0.0)
            if (1.0 + gain) * found.seconds > found.tokens * seconds * (1.0 + 1e-12):
                found = TreeShape(branching, budget, 1.0 + gain, seconds)
    return _counted(found)


def _counted(shape: TreeShape) -> TreeShape:
    """With the nodes that the branching has, which may be fewer than were paid for."""
    nodes, width = 0, 1
    for children in shape.branching:
        width *= children
        nodes += width
    return shape._replace(nodes=nodes)
