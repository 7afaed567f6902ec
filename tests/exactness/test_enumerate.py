"""The enumerator itself: boxes, joint laws, and the brute-force driver."""

import random
from collections import Counter, defaultdict
from collections.abc import Hashable
from itertools import product

import pytest
import torch

from forerun.distributions import DenseLaw, Law, stack_laws
from forerun.verification import Agreement, BlockVerification, Proposal, Rule, TokenLevel
from tests.exactness.enumerate import FINE, Tokens, cells, chain_law, distance, draws, outcomes, run_law
from tests.exactness.tables import constant


@pytest.mark.parametrize("hints", [[[], []], [[3], [9]], [[4, 11], [1, 2, 3]]], ids=["none", "right", "wrong"])
def test_cells_count_every_grid_point(hints: list[list[int]]) -> None:
    """A wrong hint must cost time only; a box that hides a change would make the law wrong."""

    def observe(point: Tokens) -> str:
        if point[0] >= 3:
            return "first rejected"
        return "second rejected" if point[1] >= 9 else "both"

    counted: dict[str, float] = {}
    for low, weight in cells(observe, hints, 16):
        counted[observe(low)] = counted.get(observe(low), 0.0) + weight
    brute: dict[str, float] = {}
    for first in range(16):
        for second in range(16):
            brute[observe((first, second))] = brute.get(observe((first, second)), 0.0) + 1 / 256
    assert counted == brute


@pytest.mark.parametrize("rule", [TokenLevel(), BlockVerification(), Agreement()], ids=lambda rule: rule.name)
@pytest.mark.parametrize("seed", range(2))
def test_outcomes_are_those_of_every_grid_point(rule: Rule, seed: int) -> None:
    """Boxes are proved by two corners only. Catches a rule for which that is no proof, and shares added wrongly."""
    numbers = random.Random(seed)
    grid, horizon = 8, 2

    def one_row() -> Law:
        cuts = sorted(numbers.sample(range(1, grid), 2))
        widths = [cuts[0], cuts[1] - cuts[0], grid - cuts[1]]
        return DenseLaw(torch.tensor([widths], dtype=torch.float64) / grid)

    target, claimed = tuple(one_row() for _ in range(horizon + 1)), tuple(one_row() for _ in range(horizon))
    for drafted in product(range(3), repeat=horizon):
        found: defaultdict[Hashable, float] = defaultdict(float)
        for outcome, weight in outcomes(rule, target, claimed, drafted, grid):
            found[outcome.accepted, tuple(outcome.emission.dense()[0].tolist())] += weight
        brute: Counter[Hashable] = Counter()
        proposal = Proposal(torch.tensor(drafted), stack_laws(claimed))
        for point in product(range(grid), repeat=horizon):
            outcome = rule.verify(
                stack_laws(target), proposal, uniforms=torch.tensor(point, dtype=torch.float64) / grid
            )
            brute[outcome.accepted, tuple(outcome.emission.dense()[0].tolist())] += 1
        assert {key: weight * grid**horizon for key, weight in found.items()} == dict(brute)


def test_cells_without_dimensions() -> None:
    """Horizon 0 takes no number and has one outcome of weight 1."""
    assert cells(lambda _: "only", [], FINE) == [((), 1.0)]


def test_draws_are_the_law() -> None:
    """Shares of the fine grid differ from the probabilities by rounding only."""
    law = constant([0.1, 0.0, 0.7, 0.2])(())
    assert isinstance(law, DenseLaw)
    shares = dict.fromkeys(range(4), 0.0)
    for token, weight in draws(law, FINE):
        shares[token] += weight
    assert [shares[token] for token in range(4)] == pytest.approx([0.1, 0.0, 0.7, 0.2], abs=1e-15)


def test_chain_law_of_a_two_state_chain() -> None:
    """Worked by hand: after 0 a fair coin, after 1 always 0."""
    law = chain_law(lambda context: [0.5, 0.5] if context[-1] == 0 else [1.0, 0.0], (0,), 2)
    assert law == {(0, 0): 0.25, (0, 1): 0.25, (1, 0): 0.5, (1, 1): 0.0}
    assert distance(law, {(0, 0): 0.5}) == 0.5


def test_run_law_gives_one_number_per_key() -> None:
    """A number asked for twice is one number, and numbers asked for on some paths only are weighted rightly."""

    def program(uniform: object) -> Tokens:
        assert callable(uniform)
        first = int(uniform("a") >= 0.5)
        again = int(uniform("a") >= 0.5)
        return (first, again) if first else (first, again, int(uniform("b") >= 0.75))

    assert run_law(program, 4) == {(0, 0, 0): 0.375, (0, 0, 1): 0.125, (1, 1): 0.5}
