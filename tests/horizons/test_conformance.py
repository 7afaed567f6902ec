"""What every policy by name must do. A policy class finds itself in this suite or turns it red."""

import inspect
from collections.abc import Iterator

import pytest

import forerun.horizons.rivals  # noqa: F401  (its classes must exist before they are looked for)
from forerun.errors import ForerunError
from forerun.horizons import Choice, FixedHorizon, HorizonPolicy, Seat, TreeAMTP
from forerun.recipes import HORIZONS
from tests.support.rounds import TABLE, World, context, feedback, play

COIN_GRID = 1000
NAMES = pytest.mark.parametrize("name", HORIZONS)


def policy_classes(base: type[HorizonPolicy] = HorizonPolicy) -> Iterator[type[HorizonPolicy]]:
    """All classes of the package's horizons that can be made."""
    for kind in base.__subclasses__():
        if kind.__module__.startswith("forerun.horizons.") and not inspect.isabstract(kind):
            yield kind
        yield from policy_classes(kind)


def choices(policy: HorizonPolicy, rounds: int, seed: int) -> list[Choice]:
    """What a policy chose."""
    return [told.choice for told in play(policy, rounds, seed=seed)]


def test_every_policy_has_a_name() -> None:
    """Catches a policy that nobody can ask for, and one that calls itself by another name in records.

    A seat takes its name from the joint policy of a batch, and is tested with it. TreeAMTP needs a budget, drafts trees
    only and has tests of its own.
    """
    made = {name: maker(None) for name, maker in HORIZONS.items()}
    assert {type(policy) for policy in made.values()} | {FixedHorizon, Seat, TreeAMTP} == set(policy_classes())
    assert {name: policy.name for name, policy in made.items()} == {name: name for name in made}
    assert {name for name, policy in made.items() if not policy.exact} == {
        "dspark-same-round", "sampled-probability-cut",
    }  # fmt: skip


@NAMES
def test_horizons_stay_within_the_limit(name: str) -> None:
    """Catches a floor above the limit, and a limit of 0 that was not thought of."""
    policy = HORIZONS[name](None)
    for rounds in (0, 40):
        play(policy, rounds, seed=1)
        for limit in range(17):
            for uniform in (0.0, 0.3, 0.999):
                choice = policy.propose(context(limit), uniform=uniform)
                assert 0 <= choice.planned <= limit and 0 <= choice.horizon <= limit
                assert len(choice.propensities) == limit
                assert len(choice.survival) in (0, limit)


@NAMES
def test_propensities_are_what_the_coin_does(name: str) -> None:
    """P(position j is offered) over a grid of coins. Catches a coin that is not the argument, and a forgotten one."""
    policy = HORIZONS[name](TABLE)
    play(policy, 100, seed=3)
    drawn = [policy.propose(context(6), uniform=(i + 0.5) / COIN_GRID) for i in range(COIN_GRID)]
    assert len({(choice.planned, choice.propensities) for choice in drawn}) == 1
    assert all(choice.explored or choice.horizon == choice.planned for choice in drawn)
    offered = [sum(choice.horizon >= place for choice in drawn) / COIN_GRID for place in range(1, 7)]
    assert offered == pytest.approx(drawn[0].propensities, abs=1.0 / COIN_GRID)


@NAMES
def test_same_inputs_same_choices(name: str) -> None:
    """Ranks that disagree on k stand still for ever. Catches clocks, global randomness and the order of sets."""
    assert choices(HORIZONS[name](TABLE), 150, seed=5) == choices(HORIZONS[name](TABLE), 150, seed=5)


@NAMES
def test_proposing_changes_nothing(name: str) -> None:
    """Catches a proposal that learns: an engine may ask and then drop the round."""
    asked, plain = HORIZONS[name](TABLE), HORIZONS[name](TABLE)
    for block in range(30):
        for limit in (3, 0, 8):
            asked.propose(context(limit, target_entropy=0.1 * block, generated=1), uniform=0.01 * block)
        assert choices(asked, 4, seed=block) == choices(plain, 4, seed=block)


@NAMES
def test_a_clone_forgets_and_stands_alone(name: str) -> None:
    """Catches a clone that shares its arms, its window or its cost table, or drops a parameter."""
    policy = HORIZONS[name](TABLE)
    fresh = choices(HORIZONS[name](TABLE), 60, seed=7)
    play(policy, 150, seed=6)
    clone = policy.clone()
    kept = policy.propose(context(), uniform=0.5)
    assert choices(clone, 60, seed=7) == fresh
    assert policy.propose(context(), uniform=0.5) == kept
    assert (clone.name, clone.exact, clone.wants) == (policy.name, policy.exact, policy.wants)


@NAMES
def test_rounds_without_drafts_and_cut_rounds_do_no_harm(name: str) -> None:
    """Catches divisions by zero, and a state that a round without evidence breaks."""
    policy = HORIZONS[name](None)
    play(policy, 30, seed=1, world=World(limit=lambda _: 0))
    play(policy, 30, seed=2, world=World(ends=1.0))
    told = play(policy, 30, seed=3, world=World(limit=lambda rng: rng.randrange(17)))
    assert all(0 <= each.choice.horizon <= each.context.limit for each in told)


@NAMES
def test_drafting_comes_back_when_it_pays_again(name: str) -> None:
    """A gate of TensorRT-LLM switches drafting off for good. Here 300 perfect rounds follow 320 hopeless ones.

    What a negative control drops teaches it nothing, so that may well stay off.
    """
    policy = HORIZONS[name](TABLE)
    hopeless = play(policy, 320, seed=1, world=World(stands=lambda _, __: 0.0, limit=lambda _: 8, ends=0.0))
    perfect = play(policy, 300, seed=2, world=World(stands=lambda _, __: 1.0, limit=lambda _: 8, ends=0.0))
    assert sum(told.drafted for told in perfect[-50:]) > 5 or not policy.exact
    if name.startswith("windowed-survival"):
        assert sum(told.drafted for told in hopeless[-50:]) < 100


@NAMES
@pytest.mark.parametrize("uniform", [-0.1, 1.0, float("nan")])
def test_a_coin_out_of_range_is_refused(name: str, uniform: float) -> None:
    """Catches coins in percent, and comparisons that NaN slips through."""
    with pytest.raises(ForerunError, match="uniform"):
        HORIZONS[name](None).propose(context(4), uniform=uniform)


LEARN_FROM_FULL_ROUNDS = ("heuristic", "heuristic-transient", "llama-staircase", "llama-staircase-simple",
                          "censored-ema", "sglang-ema")  # fmt: skip


@pytest.mark.parametrize("name", LEARN_FROM_FULL_ROUNDS)
@pytest.mark.parametrize("cause", ["short draft", "small limit", "end of the answer"])
def test_only_rounds_that_tried_the_horizon_promote(name: str, cause: str) -> None:
    """The ratchet of llama.cpp issue 27210: depth climbs from 4 to 9 on drafts of one token, all accepted."""
    policy = HORIZONS[name](None)
    for _ in range(2):  # somewhere between the floor and the limit
        choice = policy.propose(context(16), uniform=0.0)
        policy.observe(feedback(choice, choice.horizon))
    before = policy.propose(context(16), uniform=0.0).horizon
    assert 1 < before < 16
    for _ in range(50):
        choice = policy.propose(context(1 if cause == "small limit" else 16), uniform=0.0)
        if cause == "end of the answer":
            policy.observe(feedback(choice, choice.horizon, censored=1))
        else:
            policy.observe(feedback(choice, 1, drafted=1))
    assert policy.propose(context(16), uniform=0.0).horizon <= before
