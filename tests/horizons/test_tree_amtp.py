"""AMTP for trees: what it learns in worlds whose survivals are known, and what it chooses from it."""

import json
import random
from dataclasses import replace
from itertools import accumulate, product
from operator import mul, truediv

import numpy as np
import pytest

from forerun.errors import ForerunError
from forerun.horizons import (
    Choice,
    CostSurface,
    CostTable,
    DraftTime,
    FeatureLevel,
    PassTime,
    RoundContext,
    RoundFeedback,
    TreeAMTP,
    best_shape,
    num_nodes,
)
from forerun.horizons.tree_shape import doubled_chain

LIMIT, BUDGET = 4, 12
FLAT, STEEP = 0.01, 0.3
"""Seconds of one more node in a pass that takes a second."""


def costs(per_node: float) -> CostSurface:
    passes = [
        PassTime(width=w, context_length=100, batch_size=1, seconds=(1.0 + per_node * w,)) for w in (1, BUDGET + 1)
    ]
    return CostSurface.from_profile(passes, [DraftTime(tokens=LIMIT, seconds=(0.02 * LIMIT,))])


def context(limit: int = LIMIT) -> RoundContext:
    return RoundContext(limit=limit, context_length=100, generated=10, temperature=1.0)


def play(policy: TreeAMTP, hazards: dict[int, float], rounds: int, *, seed: int, per_node: float) -> list[Choice]:
    """Rounds in which w siblings all fail with the probability given for w, at every depth."""
    rng = random.Random(seed)
    return [one_round(policy, hazards, context(), rng, per_node) for _ in range(rounds)]


def one_round(
    policy: TreeAMTP, hazards: dict[int, float], here: RoundContext, rng: random.Random, per_node: float
) -> Choice:
    choice = policy.propose(here, uniform=rng.random())
    assert choice.branching is not None
    stands = [rng.random() >= hazards[width] for width in choice.branching]
    accepted = stands.index(False) if False in stands else len(stands)
    tried = min(accepted + 1, len(stands))
    nodes, depth = num_nodes(choice.branching), len(choice.branching)
    policy.observe(
        RoundFeedback(
            choice=choice,
            context=here,
            accepted=accepted,
            accept_probabilities=(1.0,) * accepted + (0.0,) * (tried - accepted),
            overlaps=tuple(1.0 - hazards[width] for width in choice.branching[:tried]),
            seconds=1.0 + per_node * nodes + 0.02 * depth,
            draft_seconds=0.02 * depth,
            verify_seconds=1.0 + per_node * nodes,
            verify_width=1 + nodes,
            tree_depth=depth,
        )
    )
    return choice


EVERY_SHAPE = [
    shape for depth in range(LIMIT + 1) for shape in product(range(1, 9), repeat=depth) if num_nodes(shape) <= BUDGET
]


def value(shape: tuple[int, ...], hazards: dict[int, float], per_node: float) -> tuple[float, float]:
    """Expected tokens of a round and its seconds, by definition."""
    reached = list(accumulate((1.0 - hazards[width] for width in shape), mul, initial=1.0))
    return sum(reached), 1.0 + per_node * num_nodes(shape) + 0.02 * len(shape)


def power(first: float, slope: float) -> dict[int, float]:
    """Odds of failing fall by one factor whenever siblings double."""
    odds = {width: first / (1.0 - first) * width**slope for width in range(1, 9)}
    return {width: value / (1.0 + value) for width, value in odds.items()}


def test_wide_where_siblings_rescue_and_narrow_where_they_do_not() -> None:
    """800 rounds, one seed. Catches a width slope that is not learned, learned with the wrong sign, or not used."""
    rescued, hopeless = power(0.5, -2.0), dict.fromkeys(range(1, 9), 0.5)
    shapes, slopes = {}, {}
    for name, hazards in (("rescued", rescued), ("hopeless", hopeless)):
        policy = TreeAMTP(max_nodes=BUDGET, costs=costs(FLAT), features=FeatureLevel.F0, epsilon=0.1)
        last = play(policy, hazards, 800, seed=1, per_node=FLAT)[-100:]
        planned = [choice.branching for choice in last if not choice.explored]
        shapes[name] = max(set(planned), key=planned.count)
        slopes[name] = policy.width_slope
    assert max(shapes["rescued"] or ()) >= 2 and max(shapes["hopeless"] or (1,)) == 1, shapes
    assert slopes["rescued"] < -1.0 < -0.2 < slopes["hopeless"], slopes


def test_learned_hazards_choose_nearly_the_best_tree() -> None:
    """Hazards of the modelled kind, 800 rounds, seeds 0 and 1: within 3 % of the best shape's rate, costs included."""
    hazards = power(0.35, -1.0)
    for seed in range(2):
        policy = TreeAMTP(max_nodes=BUDGET, costs=costs(0.04), features=FeatureLevel.F0, epsilon=0.1)
        last = play(policy, hazards, 800, seed=seed, per_node=0.04)[-50:]
        rates = {shape: truediv(*value(shape, hazards, 0.04)) for shape in EVERY_SHAPE}
        mine = [rates[choice.branching or ()] for choice in last if not choice.explored]
        assert min(mine) >= 0.97 * max(rates.values()), (seed, min(mine), max(rates.values()))


@pytest.mark.slow
def test_shapes_follow_the_context() -> None:
    """Two kinds of rounds, told apart by the target's law: easy ones want depth, hard ones width or nothing.

    4,000 rounds, seeds 0 to 2; the last 1,000 in expected tokens over seconds, explored rounds included. At least 97 %
    of choosing the best shape in each kind of round, and more than the best single shape for both.
    """
    kinds = [
        (power(0.06, -0.3), replace(context(), target_entropy=0.1, target_top_prob=0.97, target_margin=0.95)),
        (power(0.75, -2.0), replace(context(), target_entropy=2.8, target_top_prob=0.2, target_margin=0.05)),
    ]
    tables = [{shape: value(shape, hazards, 0.06) for shape in EVERY_SHAPE} for hazards, _ in kinds]
    best = [max(table, key=lambda shape: truediv(*table[shape])) for table in tables]
    results = []
    for seed in range(3):
        policy, rng = TreeAMTP(max_nodes=BUDGET, costs=costs(0.06)), random.Random(seed)
        rounds = []
        for _ in range(4000):
            kind = rng.randrange(2)
            rounds.append((kind, one_round(policy, *kinds[kind], rng, 0.06).branching or ()))
        played = rounds[3000:]

        def rate(shapes: list[tuple[int, ...]], played: list[tuple[int, tuple[int, ...]]] = played) -> float:
            both = [tables[kind][shape] for (kind, _), shape in zip(played, shapes, strict=True)]
            return sum(tokens for tokens, _ in both) / sum(seconds for _, seconds in both)

        mine, oracle = rate([shape for _, shape in played]), rate([best[kind] for kind, _ in played])
        fixed = max(rate([shape] * len(played)) for shape in EVERY_SHAPE)
        results.append((mine, oracle, fixed))
    assert all(mine >= 0.97 * oracle and mine > fixed for mine, oracle, fixed in results), results


def test_a_dear_pass_makes_trees_small() -> None:
    """The same hazards under two costs. Catches costs by depth where they belong to nodes."""
    sizes = {}
    for per_node in (FLAT, STEEP):
        choice = TreeAMTP(max_nodes=BUDGET, costs=costs(per_node)).propose(context(), uniform=0.9)
        sizes[per_node] = num_nodes(choice.branching or ())
    assert sizes[FLAT] > 2 * sizes[STEEP], sizes


def test_without_costs_it_measures_first() -> None:
    """Nothing, a chain and a doubled chain, three times each, whatever was learned; then the costs decide.

    Catches an answer of a few rounds, or a coin among the first ones, after which some cost is still unknown.
    """
    policy = TreeAMTP(max_nodes=BUDGET, epsilon=0.0)
    choices = play(policy, power(0.3, -1.0), 12, seed=0, per_node=FLAT)
    assert [choice.branching for choice in choices[:9]] == [(), (1, 1, 1, 1), (2, 1, 1, 1)] * 3
    assert num_nodes(choices[-1].branching or ()) > 1
    for seed in range(3):
        unlucky = TreeAMTP(max_nodes=BUDGET, epsilon=0.9)
        play(unlucky, power(0.3, -1.0), 30, seed=seed, per_node=FLAT)
        assert unlucky.propose(context(0), uniform=0.0).branching == ()


def test_coins_shapes_and_propensities() -> None:
    """Half of epsilon to each explored shape. Catches a depth beyond the plan whose propensity is another."""
    policy = TreeAMTP(max_nodes=BUDGET, costs=costs(STEEP), epsilon=0.5)
    drawn = [policy.propose(context(6), uniform=(coin + 0.5) / 8) for coin in range(8)]
    assert [choice.branching for choice in drawn[:4]] == [(1,) * 6] * 2 + [doubled_chain(6, BUDGET)] * 2
    (plan,) = {choice.branching for choice in drawn[4:]}
    assert plan is not None and len(plan) < 6
    for choice in drawn:
        assert choice.propensities == (1.0,) * len(plan) + (0.5,) * (6 - len(plan))
        assert (choice.planned, choice.horizon) == (len(plan), len(choice.branching or ()))
        assert len(choice.survival) == 6


def test_limits_and_budgets_hold() -> None:
    for budget, children in ((1, 8), (5, 1), (30, 3)):
        policy = TreeAMTP(max_nodes=budget, max_children=children, epsilon=0.5)
        for limit in (0, 1, 3, 9):
            for turn in range(10):
                choice = policy.propose(context(limit), uniform=turn / 10)
                shape = choice.branching
                assert shape is not None and len(shape) <= min(limit, budget) and num_nodes(shape) <= budget
                assert max(shape, default=1) <= children and len(choice.propensities) == limit


def test_a_saved_state_goes_on_and_a_clone_does_not() -> None:
    """Through JSON. Catches a part that is not saved, and one that a clone shares."""
    policy = TreeAMTP(max_nodes=BUDGET, epsilon=0.1)
    play(policy, power(0.4, -1.0), 60, seed=3, per_node=FLAT)
    state = json.loads(json.dumps(policy.state_dict()))
    other = policy.clone()
    assert other.propose(context(), uniform=0.5).branching == ()  # it begins by measuring
    other.load_state_dict(state)
    assert play(policy, power(0.4, -1.0), 40, seed=4, per_node=FLAT) == play(
        other, power(0.4, -1.0), 40, seed=4, per_node=FLAT
    )
    assert policy.state_dict() == other.state_dict()
    with pytest.raises(ForerunError, match="tree AMTP state: format"):
        other.load_state_dict(state | {"format": "forerun-amtp/2"})


def test_a_tree_that_failed_at_once_is_paid_for_whole() -> None:
    """One depth was tried and three were drafted. Catches costs of deep trees booked as those of short chains."""
    choice = Choice(horizon=3, planned=3, explored=False, propensities=(1.0,) * 4, branching=(2, 1, 1))
    told = RoundFeedback(
        choice=choice, context=context(), accepted=0, accept_probabilities=(0.0,), overlaps=(0.2,), seconds=2.0,
        draft_seconds=0.5, verify_seconds=1.0, verify_width=7, tree_depth=3,
    )  # fmt: skip
    table, surface = CostTable(), CostSurface()
    for _ in range(3):
        table.observe_round(told)
        surface.observe_round(told)
    assert table.measured == (3,)
    assert surface.draft_seconds(3)[3] == pytest.approx(0.5)


def test_impossible_settings_are_refused() -> None:
    for settings, complaint in (
        ({"max_nodes": 0}, "max_nodes is 0"),
        ({"max_nodes": 4, "features": FeatureLevel.F4}, "F4"),
        ({"max_nodes": 4, "epsilon": 2.0}, "epsilon"),
        ({"max_nodes": 4, "prior_hazards": ()}, "prior_hazards"),
    ):
        with pytest.raises(ForerunError, match=complaint):
            TreeAMTP(**settings)
    with pytest.raises(ForerunError, match="uniform"):
        TreeAMTP(max_nodes=4).propose(context(), uniform=1.0)


def test_no_finite_cost_is_refused() -> None:
    with pytest.raises(ForerunError, match="finite cost"):
        best_shape(np.ones((1, 2)), [float("inf"), float("inf")])
