"""Tree shapes against brute force over all branchings."""

import itertools
import random

import pytest

from forerun.errors import ForerunError
from forerun.horizons import best_horizon, best_tree
from forerun.horizons.tree_shape import sibling_hazard


def expected_tokens(branching: tuple[int, ...], hazards: list[float], share: float) -> float:
    """Walk of the verifier by definition: at each depth try the siblings in turn; sum over where it ends."""
    total, reached = 1.0, 1.0
    for depth, children in enumerate(branching):
        accepted, tried = 0.0, 1.0
        for sibling in range(children):
            chance = (1.0 - hazards[depth]) * share**sibling
            accepted += tried * chance
            tried *= 1.0 - chance
        reached *= accepted
        total += reached
    return total


def nodes_of(branching: tuple[int, ...]) -> int:
    widths = list(itertools.accumulate(branching, lambda width, children: width * children))
    return sum(widths)


@pytest.mark.parametrize("seed", range(12))
def test_best_tree_is_the_maximum_over_all_branchings(seed: int) -> None:
    """Staircase costs by nodes, costs by depth, random hazards. Catches nodes that are counted by depth or by leaf."""
    rng = random.Random(seed)
    hazards, share, budget = [rng.random() for _ in range(3)], rng.choice((1.0, 0.6)), 9
    verify = list(itertools.accumulate((rng.choice((0.0, 0.05, 0.4)) for _ in range(budget)), initial=1.0))
    draft = [0.0, 0.1, rng.uniform(0.1, 0.5), 0.9] if seed % 2 else None
    shapes = [
        branching
        for depth in range(4)
        for branching in itertools.product(range(1, 5), repeat=depth)
        if nodes_of(branching) <= budget
    ]

    def rate(branching: tuple[int, ...]) -> float:
        seconds = verify[nodes_of(branching)] + (0.0 if draft is None else draft[len(branching)])
        return expected_tokens(branching, hazards, share) / seconds

    found = best_tree(hazards, verify, draft_seconds=draft, sibling_share=share, max_children=4)
    assert rate(found.branching) == pytest.approx(max(map(rate, shapes)), rel=1e-9)
    assert found.nodes == nodes_of(found.branching)
    assert found.tokens == pytest.approx(expected_tokens(found.branching, hazards, share))


def test_one_child_each_is_the_chain() -> None:
    """With max_children 1 the tree is the chain of best_horizon. Catches survivals of another depth."""
    hazards, costs = [0.1, 0.5, 0.2, 0.9], [1.0, 1.1, 1.15, 1.3, 1.5]
    assert len(best_tree(hazards, costs, max_children=1).branching) == best_horizon(hazards, costs).horizon


def test_siblings() -> None:
    assert sibling_hazard(0.3, 0, sibling_share=1.0) == 1.0
    assert sibling_hazard(0.3, 3, sibling_share=1.0) == pytest.approx(0.3**3)
    with pytest.raises(ForerunError, match="verify costs"):
        best_tree([0.5], [])
    with pytest.raises(ForerunError, match="need 2 draft costs"):
        best_tree([0.5], [1.0], draft_seconds=[0.0])
    with pytest.raises(ForerunError, match="must be in"):
        best_tree([1.5], [1.0])
