"""AMTP as a whole: start, costs, exploration, saved state, work per call."""

import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from forerun.errors import ForerunError
from forerun.horizons import (
    AMTP,
    HIDDEN_DIMS,
    Ablation,
    Choice,
    CostTable,
    DirectSurvival,
    FeatureLevel,
    Linear,
    Logistic,
    RoundContext,
    RoundFeedback,
    TokenClass,
)
from forerun.horizons.evidence import evidence
from forerun.horizons.features import FEATURE_NAMES, num_shared, scaled_features
from forerun.horizons.hazards import LogisticHazards
from forerun.horizons.history import AcceptanceHistory
from tests.support.speed import without_shape_checks

NO_COIN = 0.999


def linear_table(limit: int, step: float = 0.2) -> CostTable:
    return CostTable.from_profile([(k, 1.0 + step * k) for k in range(limit + 1) for _ in range(5)])


def context(limit: int = 7, entropy: float | None = None) -> RoundContext:
    return RoundContext(limit=limit, context_length=50, generated=10, temperature=1.0, target_entropy=entropy)


def play(
    policy: AMTP, accept: float, *, limit: int = 7, uniform: float = NO_COIN, step: float = 0.2, entropy: float = 1.0
) -> Choice:
    """One round in which every draft is accepted with probability `accept`, as far as labels can tell."""
    now = context(limit, entropy)
    choice = policy.propose(now, uniform=uniform)
    policy.observe(
        RoundFeedback(
            choice=choice,
            context=now,
            accepted=choice.horizon if accept > 0.5 else 0,
            accept_probabilities=(accept,) * choice.horizon,
            overlaps=(accept,) * choice.horizon,
            seconds=1.0 + step * choice.horizon,
        )
    )
    return choice


def test_warm_up_uses_the_declared_prior() -> None:
    """16 unlucky rounds do not switch drafting off; the 17th is decided by what was learned."""
    policy = AMTP(costs=linear_table(7), prior_hazards=(0.1, 0.3), warmup_rounds=16)
    choices = [play(policy, 0.01) for _ in range(17)]
    assert [round(s, 6) for s in choices[0].survival[:3]] == [0.9, 0.63, 0.441]
    assert all(choice.survival == choices[0].survival for choice in choices[:16])
    assert choices[16].survival[0] < 0.6
    assert policy.hazards(context(entropy=1.0))[0] > 0.4


def test_without_a_table_the_limit_is_drafted_until_costs_are_known() -> None:
    """Catches trimming on an unknown cost, and an AMTP that never starts to adapt."""
    policy = AMTP(epsilon=0.0)
    choices = [play(policy, 0.01) for _ in range(200)]
    measuring = [index for index, choice in enumerate(choices[:40]) if choice.horizon < 7]
    # every fourth round, three at horizon 0 and three at horizon 1; a usable table exists after the third
    assert [choices[index].horizon for index in measuring[:3]] == [0, 0, 0]
    assert measuring[:3] == [3, 7, 11]
    assert {choice.horizon for choice in choices[:11]} == {0, 7}
    assert {0, 1, 7} <= set(policy.cost_table.measured)
    assert choices[-1].horizon == 0


def test_without_measuring_rounds_nothing_is_ever_trimmed() -> None:
    policy = AMTP(epsilon=0.0, measure_every=None)
    assert {play(policy, 0.01).horizon for _ in range(100)} == {7}


def test_a_limit_beyond_the_table_is_measured() -> None:
    policy = AMTP(costs=linear_table(3), epsilon=0.0)
    assert [play(policy, 0.01).horizon for _ in range(3)] == [7, 7, 7]
    assert 7 in policy.cost_table.measured
    for _ in range(100):
        play(policy, 0.01)
    assert play(policy, 0.01).horizon < 7


def test_given_table_is_not_touched() -> None:
    table = linear_table(7)
    policy = AMTP(costs=table)
    before = table.state_dict()
    for _ in range(50):
        play(policy, 0.9, step=0.5)
    assert table.state_dict() == before
    assert policy.cost_table.seconds(7) != table.seconds(7)


def test_always_rejecting_then_recovering() -> None:
    """Horizon 0 brings no evidence: exploration alone must find the way back, and without it nothing does.

    The coin comes up in every 50th round exactly, so that nothing here is luck.
    """
    for epsilon, returns in ((0.02, True), (0.0, False)):
        policy = AMTP(costs=linear_table(7), epsilon=epsilon)
        with without_shape_checks():
            for index in range(1000):
                last = play(policy, 0.001, uniform=0.0 if index % 50 == 49 else NO_COIN)
            assert last.planned == 0
            assert all(play(policy, 0.001).horizon == 0 for _ in range(40))
            coins = [0.0 if index % 50 == 49 else NO_COIN for index in range(1000)]
            horizons = [play(policy, 0.95, uniform=coin).horizon for coin in coins]
        assert (min(horizons[-100:]) >= 5) is returns
        assert (sum(horizons) == 0) is not returns


def test_an_idle_plan_explores_more_often_and_says_so() -> None:
    """Catches a policy that starts at horizon 0 by bad luck and stays there, or hides the larger propensity."""
    policy = AMTP(costs=linear_table(7), epsilon=0.02, idle_factor=5.0, prior_hazards=(0.99,))
    idle = [policy.propose(context(), uniform=uniform) for uniform in (0.0999, 0.1001)]
    assert [choice.planned for choice in idle] == [0, 0]
    assert [choice.explored for choice in idle] == [True, False]
    assert idle[0].propensities == idle[1].propensities == (0.1,) * 7
    busy = AMTP(costs=linear_table(7), epsilon=0.02, idle_factor=5.0, prior_hazards=(0.3,))
    choice = busy.propose(context(), uniform=0.05)
    assert choice.planned > 0
    assert not choice.explored
    assert choice.propensities[-1] == 0.02
    eager = AMTP(epsilon=0.5, costs=linear_table(7), prior_hazards=(0.99,))
    assert eager.propose(context(), uniform=0.999).explored
    assert policy.clone().idle_factor == 5.0
    while policy.report.informative < 64:  # by then a plan of 0 is knowledge: exploring it costs what it costs
        play(policy, 0.001, uniform=0.0)
    assert policy.propose(context(), uniform=0.0201).propensities == (0.02,) * 7


def test_explored_rounds_are_counted() -> None:
    policy = AMTP(costs=linear_table(7), epsilon=0.1)
    for index in range(100):
        play(policy, 0.3, uniform=0.05 if index % 10 == 0 else NO_COIN)
    report = policy.report
    assert (report.rounds, report.explored, report.invalid_hazards, report.cost_outliers) == (100, 10, 0, 0)
    assert report.effective_sample_sizes[0] > report.effective_sample_sizes[6]


def test_learns_from_the_features_it_proposed_with() -> None:
    """Two rounds in flight, the first explored: each step is that of the hazard model on the weighted evidence.

    Catches features computed anew at learning time, from a history that has moved on, and weights that stay behind.
    """
    policy = AMTP(costs=linear_table(7), epsilon=0.1)
    model = LogisticHazards(
        num_features=num_shared(policy.features),
        prior_hazards=policy.prior_hazards,
        learning_rate=Logistic().learning_rate,
    )
    contexts = [context(entropy=0.1), context(entropy=3.0)]
    choices = [policy.propose(now, uniform=coin) for now, coin in zip(contexts, (0.0, NO_COIN), strict=True)]
    assert choices[0].planned < choices[0].horizon
    assert choices[0].features != choices[1].features
    for now, choice in zip(contexts, choices, strict=True):
        feedback = RoundFeedback(
            choice=choice,
            context=now,
            accepted=0,
            accept_probabilities=(0.3,) * choice.horizon,
            overlaps=(0.3,) * choice.horizon,
            seconds=1.0,
        )
        policy.observe(feedback)
        model.update(choice.features, evidence(feedback, soft=True, importance_clip=20.0))
    assert policy.state_dict()["hazards"] == model.state_dict()


def test_saved_state_continues_identically() -> None:
    """Through JSON text. Catches any part of the state that is not saved: history, squares, pending cells, counters."""
    policy = AMTP(epsilon=0.1)
    for index in range(150):
        play(policy, 0.3 + 0.4 * (index % 3 == 0), uniform=0.0 if index % 17 == 0 else NO_COIN, limit=3 + index % 5)
    again = AMTP(epsilon=0.1)
    again.load_state_dict(json.loads(json.dumps(policy.state_dict(), allow_nan=False)))
    assert again.report == policy.report
    for index in range(150):
        uniform = 0.0 if index % 13 == 0 else NO_COIN
        assert play(policy, 0.8, uniform=uniform) == play(again, 0.8, uniform=uniform)
    assert again.state_dict() == policy.state_dict()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "forerun-amtp/1"}, "format"),
        ({"more": 1}, "unknown keys"),
        ({"feature_names": ["accept_rate_fast"]}, "feature_names is"),
        ({"rounds": True}, "rounds: expected a count"),
        ({"history": {}}, "acceptance history: missing keys"),
        ({"effective_sample_sizes": {"sums": [1.0], "squares": []}}, "1 sums but 0 squares"),
    ],
)
def test_broken_state_is_refused_and_changes_nothing(change: dict[str, object], message: str) -> None:
    policy = AMTP()
    play(policy, 0.9)
    before = policy.state_dict()
    with pytest.raises(ForerunError, match=message):
        policy.load_state_dict({**before, **change})
    assert policy.state_dict() == before


def test_bad_parameters_are_refused() -> None:
    makers: list[Callable[[], AMTP]] = [
        lambda: AMTP(epsilon=-0.1),
        lambda: AMTP(epsilon=1.1),
        lambda: AMTP(idle_factor=0.5),
        lambda: AMTP(importance_clip=0.5),
        lambda: AMTP(learner=Logistic(learning_rate=0.0)),
        lambda: AMTP(learner=Linear(radius=0.0)),
        lambda: AMTP(learner=Linear(), features=FeatureLevel.F4),
        lambda: AMTP(learner=DirectSurvival(learning_rate=0.0)),
        lambda: AMTP(pad_widths=(4, 2)),
        lambda: AMTP(pad_widths=(1, 2), pad_rate=1.5),
        lambda: AMTP(ablation=Ablation.UNWEIGHTED_LOSS, soft_labels=False),
        lambda: AMTP(prior_hazards=()),
        lambda: AMTP(prior_hazards=(1.0,)),
        lambda: AMTP(warmup_rounds=-1),
        lambda: AMTP(measure_every=1),
    ]
    for make in makers:
        with pytest.raises(ForerunError):
            make()


@pytest.mark.parametrize("level", list(FeatureLevel))
def test_features_match_their_names_and_scale(level: FeatureLevel) -> None:
    """Unknown values are the middle; usual ones stay near [-1, 1]."""
    empty = scaled_features(context(), AcceptanceHistory(), level)
    assert len(empty) == len(FEATURE_NAMES[level]) + (6 if level is FeatureLevel.F4 else 0)  # limit 7
    assert all(abs(value) <= 1.1 for value in empty)
    extreme = RoundContext(
        limit=1,
        context_length=32768,
        generated=2048,
        temperature=9.0,
        target_entropy=11.0,
        target_top_prob=1.0,
        target_margin=0.0,
        last_token_repeats=True,
        token_class=TokenClass.DIGIT,
        suffix_match=31,
        hidden=(2.5,) * HIDDEN_DIMS,
        draft_margins=(20.0,),
    )
    values = dict(zip(FEATURE_NAMES[level], scaled_features(extreme, AcceptanceHistory(), level), strict=True))
    assert all(abs(value) <= 1.5 for value in values.values())
    if level in (FeatureLevel.F2, FeatureLevel.F4):
        assert values["token_is_digit"] == 1.0
        assert values["token_is_word"] == 0.0
        assert (values["target_top_prob"], values["target_margin"], values["last_token_repeats"]) == (1.0, -1.0, 1.0)
        assert values["target_entropy"] == pytest.approx(1.0, abs=1e-4)


def operations(policy: AMTP, limit: int) -> int:
    """Bytecodes that the package executes in one call of `propose`."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        nonlocal count
        if "horizons" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    now = context(limit)
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        policy.propose(now, uniform=NO_COIN)
    finally:
        sys.settrace(before)
    return count


def test_work_is_linear_in_the_limit() -> None:
    """Counts operations, not seconds. Catches survivals recomputed for every horizon, which is O(K^2).

    Loops inside the interpreter (map, sum) do not count; those that the package writes do.
    """
    policy = AMTP(costs=linear_table(64), warmup_rounds=0)
    play(policy, 0.9, limit=64)
    policy.propose(context(64), uniform=NO_COIN)  # reads the cost curve, once a round
    counts = {limit: operations(policy, limit) for limit in (8, 16, 32, 64)}
    per_position = [(counts[2 * limit] - counts[limit]) / limit for limit in (8, 16, 32)]
    assert min(per_position) > 10, counts
    assert max(per_position) < 1.2 * min(per_position), counts
