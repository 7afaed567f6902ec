"""The guard's phases by hand: drafting that does not pay rests, and comes back when it pays."""

from collections.abc import Callable

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


def guarded(**changed: float) -> Guarded:
    """Two drafts a round, and phases short enough to count."""
    sizes = {"probe_every": 10, "probe_rounds": 2, "first_probe": 4, "rest_rounds": 3, "look_rounds": 2,
             "trial_rounds": 2, "memory": 1000}  # fmt: skip
    return Guarded(FixedHorizon(2), **(sizes | changed))  # type: ignore[arg-type]


def test_drafting_that_pays_is_probed_and_goes_on() -> None:
    """Three tokens in 1.5 against one in 1."""
    assert horizons(guarded(), 28, lambda _: True) == [2] * 4 + [0] * 2 + [2] * 10 + [0] * 2 + [2] * 10


def test_drafting_that_does_not_pay_rests_longer_and_longer() -> None:
    """Rests of 3, 6, 10, 10 rounds, between them two rounds of the limit and two of the policy's own.

    Catches a rest for ever, one that does not grow, and one that outgrows `probe_every`.
    """
    look = [8, 8, 2, 2]
    expected = [2] * 4 + [0] * 2 + [0] * 3 + look + [0] * 6 + look + [0] * 10 + look + [0] * 10 + look
    assert horizons(guarded(), len(expected), lambda _: False) == expected


def test_it_comes_back_and_the_next_rest_is_short_again() -> None:
    """Pays from round 20 on, and no longer from round 40 on: the trial after the rest of 6 shows it."""
    expected = [2] * 4 + [0] * 5 + [8, 8, 2, 2] + [0] * 6 + [8, 8, 2, 2] + [2] * 10 + [0] * 2 + [2] * 10
    found = horizons(guarded(memory=4), 60, lambda index: 20 <= index < 40)
    assert found[: len(expected)] == expected
    assert found[len(expected) :][:7] == [0] * 2 + [0] * 3 + [8, 8]


@pytest.mark.parametrize(("margin", "rests"), [(1.05, True), (0.99, False)])
def test_the_margin_decides(margin: float, rests: bool) -> None:
    """A draft that stands brings two tokens in 2 seconds: exactly the rate of plain decoding."""
    policy = Guarded(
        FixedHorizon(1), first_probe=4, probe_rounds=2, disable_below=margin, enable_above=1.1, rest_rounds=5
    )  # fmt: skip
    for _ in range(7):
        now = context(8)
        choice = policy.propose(now, uniform=0.5)
        policy.observe(feedback(choice, choice.horizon, now=now, seconds=1.0 + choice.horizon))
    assert (policy.propose(context(8), uniform=0.5).horizon == 0) is rests


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ForerunError, match="at least 1 round"):
        guarded(trial_rounds=0)
    with pytest.raises(ForerunError, match="on and off"):
        guarded(disable_below=1.2, enable_above=1.1)
