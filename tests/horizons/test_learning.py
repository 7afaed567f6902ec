"""AMTP in simulated worlds whose survivals are known: seeded, sizes declared, scores printed on failure."""

import random
from collections.abc import Iterator

import pytest

from forerun.horizons import AMTP, CostTable, FeatureLevel, HorizonPolicy, RoundContext, RoundFeedback, gains, survivals

LIMIT = 8
COSTS = [1.0 + 0.12 * k for k in range(LIMIT + 1)]
SEEDS = (0, 1, 2)
ROUNDS = 1200
TIMING_NOISE = 0.05
PROFILE = [(k, cost) for k, cost in enumerate(COSTS) for _ in range(5)]
GAINS: dict[float, list[float]] = {}

# hazard at every position, and what the target law showed before drafting: entropy, top probability, margin
LEVELS = [(0.05, 0.1, 0.97, 0.95), (0.2, 0.7, 0.8, 0.65), (0.45, 1.6, 0.5, 0.3), (0.8, 3.0, 0.2, 0.08)]


def visible_contexts(seed: int) -> Iterator[tuple[float, RoundContext]]:
    """Difficulty drawn afresh each round; the target law tells it, up to noise."""
    rng = random.Random(seed)
    for index in range(ROUNDS):
        hazard, entropy, top_prob, margin = rng.choice(LEVELS)
        yield (
            hazard,
            RoundContext(
                limit=LIMIT,
                context_length=100 + index % 300,
                generated=index % 300,
                temperature=1.0,
                target_entropy=max(0.0, entropy + rng.gauss(0.0, 0.05)),
                target_top_prob=min(1.0, max(0.0, top_prob + rng.gauss(0.0, 0.03))),
                target_margin=min(1.0, max(0.0, margin + rng.gauss(0.0, 0.03))),
            ),
        )


def two_regimes(seed: int) -> Iterator[tuple[float, RoundContext]]:
    """Easy and hard stretches of 50 rounds on average; nothing but past acceptance tells which."""
    rng = random.Random(seed)
    easy = True
    for index in range(ROUNDS):
        if rng.random() < 0.02:
            easy = not easy
        yield (
            0.05 if easy else 0.7,
            RoundContext(limit=LIMIT, context_length=100 + index % 300, generated=index % 300, temperature=1.0),
        )


WORLDS = {"visible": visible_contexts, "regimes": two_regimes}


def gains_of(hazard: float) -> list[float]:
    return GAINS.setdefault(hazard, gains(survivals([hazard] * LIMIT)))


def throughput(horizons: Iterator[tuple[float, int]]) -> float:
    """Expected tokens / expected cost, a ratio of sums."""
    pairs = list(horizons)
    return sum(gains_of(hazard)[k] for hazard, k in pairs) / sum(COSTS[k] for _, k in pairs)


def played(policy: HorizonPolicy, world: str, seed: int) -> Iterator[tuple[float, int]]:
    """(hazard, horizon) of every round. Accept probabilities vary around 1 - hazard, so labels are noisy."""
    rng = random.Random(1000 + seed)
    for hazard, context in WORLDS[world](seed):
        choice = policy.propose(context, uniform=rng.random())
        spread = 0.9 * min(hazard, 1.0 - hazard)
        accepts = tuple(1.0 - hazard + spread * rng.choice((-1.0, 1.0)) for _ in range(choice.horizon))
        accepted = next((i for i, accept in enumerate(accepts) if rng.random() >= accept), choice.horizon)
        policy.observe(
            RoundFeedback(
                choice=choice,
                context=context,
                accepted=accepted,
                accept_probabilities=accepts,
                overlaps=accepts,
                seconds=COSTS[choice.horizon] * rng.lognormvariate(0.0, TIMING_NOISE),
            )
        )
        yield hazard, choice.horizon


def best_known(hazard: float) -> int:
    ratios = [gain / cost for gain, cost in zip(gains_of(hazard), COSTS, strict=True)]
    return ratios.index(max(ratios))


def oracle(world: str, seed: int) -> float:
    """The best G / C in every context, survivals known."""
    return throughput((hazard, best_known(hazard)) for hazard, _ in WORLDS[world](seed))


def best_fixed(world: str, seed: int) -> float:
    return max(throughput((hazard, k) for hazard, _ in WORLDS[world](seed)) for k in range(LIMIT + 1))


@pytest.mark.parametrize(("soft", "seeds"), [(True, SEEDS), (False, SEEDS[:1])])
def test_visible_difficulty_reaches_the_per_context_oracle(soft: bool, seeds: tuple[int, ...]) -> None:
    """At least 95 % of the oracle for each seed, 1200 rounds (the best fixed horizon gets about 82 %)."""
    scores = []
    for seed in seeds:
        policy = AMTP(costs=CostTable.from_profile(PROFILE), soft_labels=soft)
        scores.append(
            (throughput(played(policy, "visible", seed)), best_fixed("visible", seed), oracle("visible", seed))
        )
    assert all(ours >= 0.95 * best for ours, _, best in scores), scores
    assert all(fixed < 0.9 * best for _, fixed, best in scores), scores


def test_without_features_it_is_no_better_than_a_fixed_horizon() -> None:
    """The contrast: level F0 cannot tell contexts apart. Catches a world that is easy for everybody."""
    ours = throughput(
        played(AMTP(costs=CostTable.from_profile(PROFILE), features=FeatureLevel.F0), "visible", SEEDS[0])
    )
    assert ours < 0.9 * oracle("visible", SEEDS[0])


def test_two_regimes_beat_every_fixed_horizon() -> None:
    """At least 10 % above the best fixed horizon in hindsight, from history alone, in each of 3 seeds x 1200 rounds."""
    scores = []
    for seed in SEEDS:
        policy = AMTP(costs=CostTable.from_profile(PROFILE), features=FeatureLevel.F1)
        scores.append(
            (throughput(played(policy, "regimes", seed)), best_fixed("regimes", seed), oracle("regimes", seed))
        )
    assert all(ours > 1.1 * fixed for ours, fixed, _ in scores), scores
    assert all(ours > 0.9 * best for ours, _, best in scores), scores


def test_without_a_table_it_learns_costs_too() -> None:
    """At least 90 % of the oracle in 1200 rounds that begin with unknown costs."""
    ours = throughput(played(AMTP(), "visible", SEEDS[0]))
    assert ours >= 0.9 * oracle("visible", SEEDS[0])
