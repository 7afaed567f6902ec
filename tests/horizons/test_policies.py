"""What AMTP and fixed horizons must do in several settings; `test_conformance` drives every policy by its name."""

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import forerun
from forerun.errors import ForerunError
from forerun.horizons import (
    AMTP,
    Choice,
    CostSurface,
    CostTable,
    DirectSurvival,
    DraftTime,
    FeatureLevel,
    FixedHorizon,
    HorizonPolicy,
    JointAMTP,
    Linear,
    Objective,
    PassTime,
    RoundContext,
    RoundFeedback,
    Schedule,
    Seat,
)

SURFACE = CostSurface.from_profile(
    [PassTime(width=w, context_length=50, batch_size=1, seconds=(0.8 + 0.1 * w,) * 3) for w in (1, 5, 9)],
    [DraftTime(tokens=k, seconds=(0.1 * k,) * 3) for k in (1, 8)],
)
TABLE = CostTable.from_profile([(k, 1.0 + 0.2 * k) for k in range(9)])
MAKERS: dict[type[HorizonPolicy], list[Callable[[], HorizonPolicy]]] = {
    FixedHorizon: [lambda: FixedHorizon(0), lambda: FixedHorizon(3)],
    AMTP: [
        lambda: AMTP(costs=TABLE, epsilon=0.1),
        lambda: AMTP(epsilon=0.25, soft_labels=False, features=FeatureLevel.F1),
        lambda: AMTP(costs=TABLE, epsilon=0.0, features=FeatureLevel.F0, warmup_rounds=0),
        lambda: AMTP(costs=TABLE, epsilon=0.5, learner=Linear(), schedule=Schedule.ANYTIME, soft_labels=False),
        lambda: AMTP(costs=TABLE, epsilon=0.1, learner=DirectSurvival(), objective=Objective.RENEWAL),
    ],
    Seat: [
        lambda: JointAMTP(epsilon=0.1).seat(),
        lambda: JointAMTP(costs=SURFACE, warmup_rounds=0, epsilon=0.2).seat(),
    ],
}
POLICIES = [maker for makers in MAKERS.values() for maker in makers]
COIN_GRID = 1000


def drive(policy: HorizonPolicy, rounds: int, seed: int) -> list[Choice]:
    """A world that accepts 70 % of what it is offered; returns what the policy chose."""
    rng = random.Random(seed)
    choices = []
    for index in range(rounds):
        context = RoundContext(
            limit=rng.randrange(9),
            context_length=20 + index,
            generated=index,
            temperature=1.0,
            target_entropy=rng.expovariate(1.0) if index else None,
            target_top_prob=rng.random() if index else None,
            target_margin=rng.random() if index else None,
            last_token_repeats=rng.random() < 0.5,
        )
        choice = policy.propose(context, uniform=rng.random())
        choices.append(choice)
        probabilities = tuple(rng.uniform(0.4, 1.0) for _ in range(choice.horizon))
        seconds = (1.0 + 0.2 * choice.horizon) * rng.uniform(0.95, 1.05)
        accepted = next((i for i, p in enumerate(probabilities) if rng.random() >= p), choice.horizon)
        policy.observe(
            RoundFeedback(
                choice=choice,
                context=context,
                accepted=accepted,
                accept_probabilities=probabilities,
                overlaps=probabilities,
                seconds=seconds,
                censored=min(2, choice.horizon) if rng.random() < 0.05 else None,
                draft_seconds=0.1 * choice.horizon,
                verify_seconds=0.9 * seconds - 0.1 * choice.horizon,
                verify_width=1 + choice.horizon,
            )
        )
    return choices


@pytest.mark.parametrize("maker", POLICIES)
@pytest.mark.parametrize("rounds", [0, 5, 200])
def test_propensities_are_what_the_coin_does(maker: Callable[[], HorizonPolicy], rounds: int) -> None:
    """P(k >= j) over a grid of coins, and sum over j of it = mean horizon. Catches a coin that is not the argument."""
    policy = maker()
    drive(policy, rounds, seed=3)
    context = RoundContext(limit=6, context_length=100, generated=50, temperature=0.7, target_entropy=1.0)
    choices = [policy.propose(context, uniform=(i + 0.5) / COIN_GRID) for i in range(COIN_GRID)]
    assert len({(choice.planned, choice.propensities) for choice in choices}) == 1
    first = choices[0]
    for choice in choices:
        assert choice.horizon == (context.limit if choice.explored else choice.planned)
    drafted = [sum(choice.horizon >= j for choice in choices) / COIN_GRID for j in range(1, context.limit + 1)]
    step = 0.5 / COIN_GRID + 1e-12  # half a step of the grid
    assert drafted == pytest.approx(first.propensities, abs=step)
    mean = sum(choice.horizon for choice in choices) / COIN_GRID
    assert sum(first.propensities) == pytest.approx(mean, abs=context.limit * step)


@pytest.mark.parametrize("maker", POLICIES)
def test_same_inputs_same_choices(maker: Callable[[], HorizonPolicy]) -> None:
    """Catches hidden randomness or clocks: two ranks with the same inputs must agree."""
    choices = drive(maker(), 200, seed=5)
    assert drive(maker(), 200, seed=5) == choices
    for choice in choices:
        limit = len(choice.propensities)
        assert 0 <= choice.planned <= limit
        assert 0 <= choice.horizon <= limit
        assert len(choice.survival) in (0, limit)


@pytest.mark.parametrize("maker", POLICIES)
def test_clone_forgets(maker: Callable[[], HorizonPolicy]) -> None:
    """Catches a clone that shares its weights, its history or its cost table, or drops a parameter."""
    policy = maker()
    fresh = drive(maker(), 100, seed=7)
    drive(policy, 200, seed=6)
    clone = policy.clone()
    learned = drive(policy, 100, seed=8)
    assert drive(clone, 100, seed=7) == fresh
    assert clone.name == policy.name
    if isinstance(policy, AMTP):
        assert learned != drive(policy.clone(), 100, seed=8)


@pytest.mark.parametrize("maker", POLICIES)
@pytest.mark.parametrize("uniform", [-0.1, 1.0, float("nan")])
def test_coin_out_of_range_is_refused(maker: Callable[[], HorizonPolicy], uniform: float) -> None:
    context = RoundContext(limit=4, context_length=1, generated=0, temperature=1.0)
    with pytest.raises(ForerunError, match="uniform"):
        maker().propose(context, uniform=uniform)


def test_fixed() -> None:
    context = RoundContext(limit=2, context_length=1, generated=0, temperature=1.0)
    assert FixedHorizon(3).propose(context, uniform=0.5).horizon == 2
    assert FixedHorizon(1).propose(context, uniform=0.5).propensities == (1.0, 0.0)
    assert FixedHorizon(5).name == "fixed-5"
    with pytest.raises(ForerunError, match="negative"):
        FixedHorizon(-1)


def test_no_torch_is_imported() -> None:
    """In a fresh interpreter: a serving engine's scheduler must not pay for torch, or need it."""
    program = (
        "import sys; import forerun.horizons; "
        "print(sorted({'torch', 'transformers', 'jaxtyping'} & {name.split('.')[0] for name in sys.modules}))"
    )
    source = Path(forerun.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(source)!r}); {program}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
