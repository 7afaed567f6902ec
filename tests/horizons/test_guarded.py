"""The guard's phases by hand: drafting that does not pay rests, and comes back when it pays."""

from collections.abc import Callable
from typing import Any

import pytest

from forerun.errors import ForerunError
from forerun.horizons import FixedHorizon, Guarded
from tests.support.rounds import context, feedback


def horizons(policy: Guarded, rounds: int, pays: Callable[[int], bool]) -> list[int]:
    """Of so many rounds: all drafts stand where it pays and none elsewhere; a round costs 1 and 1/4 for each draft."""
    found = []
    for index in range(rounds):
        now = context(8)
        choice = policy.propose(now, uniform=0.5)
        assert choice.planned == choice.horizon == sum(choice.propensities)
        accepted = choice.horizon if pays(index) else 0
        policy.observe(feedback(choice, accepted, now=now, seconds=1.0 + 0.25 * choice.horizon))
        found.append(choice.horizon)
    return found


def guarded(**changed: Any) -> Guarded:
    """Two drafts a round, and phases short enough to count."""
    sizes: dict[str, Any] = {"probe_every": 10, "probe_rounds": 4, "plain_every": 2, "first_probe": 4, "rest_rounds": 3,
             "look_rounds": 2, "trial_rounds": 2}  # fmt: skip
    return Guarded(FixedHorizon(2), **(sizes | changed))


PROBE, TRIAL = [0, 2, 0, 2], [8, 8, 0, 2]


def test_drafting_that_pays_is_probed_and_goes_on() -> None:
    """Three tokens in 1.5 against one in 1."""
    assert horizons(guarded(), 32, lambda _: True) == [2] * 4 + PROBE + [2] * 10 + PROBE + [2] * 10


def test_drafting_that_does_not_pay_rests_longer_and_longer() -> None:
    """Rests of 3, 6, 10, 10 rounds, between them two rounds of the limit and a trial.

    Catches a rest for ever, one that does not grow, and one that outgrows `probe_every`.
    """
    expected = [2] * 4 + PROBE + [0] * 3 + TRIAL + [0] * 6 + TRIAL + [0] * 10 + TRIAL + [0] * 10 + TRIAL
    assert horizons(guarded(), len(expected), lambda _: False) == expected


def test_it_comes_back_and_the_next_rest_is_short_again() -> None:
    """Pays from round 20 on, and no longer from round 36 on: the trial after the rest of 6 shows it."""
    expected = [2] * 4 + PROBE + [0] * 3 + TRIAL + [0] * 6 + TRIAL + [2] * 10 + PROBE + [0] * 3 + TRIAL
    assert horizons(guarded(), len(expected), lambda index: 20 <= index < 36) == expected


def test_both_sides_of_a_probe_see_the_same_costs() -> None:
    """Rounds grow tenfold dearer while a probe runs; drafting is a third faster throughout, and goes on.

    Catches a rate of drafting from before the probe, and plain rounds all at its end.
    """
    policy = guarded(probe_rounds=40, first_probe=40)
    for index in range(80):
        now = context(8)
        choice = policy.propose(now, uniform=0.5)
        seconds = (1.0 + 0.125 * choice.horizon) * (1.0 + 9.0 * max(0, index - 40) / 40)
        policy.observe(feedback(choice, min(1, choice.horizon), now=now, seconds=seconds))
    assert policy.propose(context(8), uniform=0.5).horizon == 2


@pytest.mark.parametrize(("margin", "rests"), [(1.05, True), (0.99, False)])
def test_the_margin_decides(margin: float, rests: bool) -> None:
    """A draft that stands brings two tokens in 2 seconds: exactly the rate of plain decoding."""
    policy = Guarded(
        FixedHorizon(1), first_probe=2, probe_rounds=4, plain_every=2, disable_below=margin, enable_above=1.1,
        rest_rounds=5,
    )  # fmt: skip
    for _ in range(7):
        now = context(8)
        choice = policy.propose(now, uniform=0.5)
        policy.observe(feedback(choice, choice.horizon, now=now, seconds=1.0 + choice.horizon))
    assert (policy.propose(context(8), uniform=0.5).horizon == 0) is rests


def test_a_noisy_probe_does_not_switch_off() -> None:
    """Four drafting rounds of 1, 1, 1 and 3 tokens in 1.5 s each are as fast as plain ones, give or take 29 %.

    By hand: the rate is 1, the errors are -0.5, -0.5, -0.5 and 1.5, so the standard error is sqrt(3) / 6 of it. A
    policy as fast as that in every round is switched off. Catches a margin that luck decides.
    """
    for tokens, rests in (([1, 1, 1, 3], False), ([1, 1, 1, 1], True)):
        policy = Guarded(FixedHorizon(2), first_probe=1, probe_rounds=8, plain_every=2, disable_below=1.25,
                         enable_above=1.25, trial_rounds=8)  # fmt: skip
        left = [1, *tokens]
        for _ in range(9):
            now = context(8)
            choice = policy.propose(now, uniform=0.5)
            emitted = left.pop(0) if choice.horizon else 1
            seconds = sum(tokens) / 4 if choice.horizon else 1.0
            policy.observe(feedback(choice, emitted - 1, now=now, seconds=seconds))
        assert (policy.propose(context(8), uniform=0.5).horizon == 0) is rests


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ForerunError, match="at least 1 round"):
        guarded(rest_rounds=0)
    with pytest.raises(ForerunError, match="4 rounds of a probe and the 1 of a trial"):
        guarded(trial_rounds=1)
    with pytest.raises(ForerunError, match="on and off"):
        guarded(disable_below=1.2, enable_above=1.1)
