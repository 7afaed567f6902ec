"""The rules of the rivals by hand, by definition or by brute force; what all policies share is tested elsewhere."""

import math
import random
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest

from forerun.errors import ForerunError
from forerun.horizons import CostTable, DraftStatistics, DrawnToken, HorizonPolicy, RoundFeedback, StopRule
from forerun.horizons.rivals import (
    EXP3,
    AcceptanceHead,
    AdaEDL,
    CalibratedScheduler,
    Cascade,
    CensoredEMA,
    DynamicConfidence,
    EMATiers,
    EntropySwitch,
    HeuristicSchedule,
    LinUCB,
    SpecDec,
    Staircase,
    StoppingPolicy,
    TableBandit,
    TapOut,
    UpperConfidence,
    WindowedSurvival,
    bandit_spec,
    kangaroo,
    llama_cpp,
    svip,
)
from forerun.horizons.rivals.admission import best_total, by_budget, early_break
from forerun.horizons.rivals.calibrated_scheduler import Calibration, ThroughputStop, evidence_of
from forerun.horizons.rivals.dynamic_confidence import best_threshold
from forerun.horizons.rivals.logistic import fit_logistic
from forerun.horizons.rivals.stop_rules import (
    AcceptanceBound,
    EntropyRise,
    Margin,
    NeverStop,
    TopProbability,
    TopProbabilityGate,
)
from tests.support.rounds import TABLE, World, context, drawn_under, feedback, play

FULL = 99
"""Stands for: all of the draft."""
CHEAP = CostTable.from_profile([(k, 1.0 + 0.01 * k) for k in range(17)] * 40)
KNEE = CostTable.from_profile([(k, 1.0 if k <= 2 else 1.0 + k) for k in range(17)] * 40)


def through(policy: HorizonPolicy, accepted: Sequence[int], limit: int = 16) -> list[int]:
    """Horizons of the rounds, and of the one after them, where so many drafts stand."""
    horizons = []
    for count in accepted:
        choice = policy.propose(context(limit), uniform=0.5)
        horizons.append(choice.horizon)
        policy.observe(feedback(choice, min(count, choice.horizon)))
    return [*horizons, policy.propose(context(limit), uniform=0.5).horizon]


def law(entropy: float = 0.5, top_prob: float = 0.8, margin: float = 0.7, confidence: float | None = None,
        prob: float = 0.8) -> DrawnToken:  # fmt: skip
    """A drawn token with these numbers."""
    return DrawnToken(DraftStatistics(entropy=entropy, top_prob=top_prob, margin=margin, confidence=confidence), prob)


def test_heuristic() -> None:
    """5, then two up or one down; the transient form begins again with an answer. Catches a floor of 0."""
    assert through(HeuristicSchedule(), [FULL, FULL, 8, 0, 0]) == [5, 7, 9, 8, 7, 6]
    assert through(HeuristicSchedule(start=2), [0, 0, 0, 1]) == [2, 1, 1, 1, 3]
    for transient, expected in ((True, 5), (False, 9)):
        policy = HeuristicSchedule(transient=transient)
        through(policy, [FULL, FULL])
        first = policy.propose(context(16, generated=1), uniform=0.0)
        assert first.horizon == expected
        policy.observe(feedback(first, first.horizon, now=context(16, generated=1)))
        assert policy.propose(context(16), uniform=0.0).horizon == expected + 2


def test_staircase() -> None:
    """2, 4 and 10 full rounds in a row lead to depths 2, 3 and 4; one rejection leads down and ends the count."""
    assert through(Staircase(), [FULL] * 16)[-1] == 4
    assert through(Staircase(), [FULL] * 15)[-1] == 3
    assert through(Staircase(), [FULL] * 5 + [0] + [FULL] * 2)[5:] == [2, 1, 1, 2]
    assert through(Staircase(climb=(1,)), [FULL, FULL, 0, FULL]) == [1, 2, 3, 2, 3]


def test_censored_ema() -> None:
    """2 + 1 + 1 = 4; then 4 - (4 - 1) / 4 = 3.25, and 3.25 - 3.25 / 4 = 2.44."""
    assert through(CensoredEMA(), [FULL, FULL, 1, 0]) == [2, 3, 4, 3, 2]
    assert through(CensoredEMA(ceiling=5.0), [FULL] * 9 + [0] * 3)[-4:] == [5, 4, 3, 2]


def test_ema_tiers() -> None:
    """Warm-up, then decisions every five rounds; up above step - 0.5, down at the lower step - 0.75."""
    assert through(EMATiers(), [FULL] * 10)[8:] == [3, 3, 5]  # the mean is 3 > 2.5, and not above 4.5
    assert through(EMATiers(), [FULL] * 15)[10:] == [5, 5, 5, 5, 5, 5]  # 3 + 2 (1 - 0.8^5) = 4.34
    assert through(EMATiers(), [FULL] * 20)[-1] == 7
    assert through(EMATiers(), [1] * 10)[-1] == 3  # 1 > 0.25
    assert through(EMATiers(), [0] * 10)[-1] == 1
    assert through(EMATiers(), [0] * 10 + [FULL] * 5)[-1] == 3  # 1 - 0.8^5 = 0.67 > 0.5
    assert EMATiers().propose(context(16, batch_size=40), uniform=0.0).horizon == 1
    assert EMATiers().propose(context(16, batch_size=64), uniform=0.0).horizon == 0


def test_entropy_switch() -> None:
    """Three horizons; the running mean takes 0.35 of the new value, before the round and not after it."""
    policy = EntropySwitch(largest=8, cuts=(0.2, 1.0))
    assert policy.propose(context(16, target_entropy=None), uniform=0.0).horizon == 4
    assert [policy.propose(context(16, target_entropy=e), uniform=0.0).horizon for e in (0.1, 0.5, 2.0)] == [8, 4, 1]
    choice = policy.propose(context(16, target_entropy=0.0), uniform=0.0)
    policy.observe(feedback(choice, 0, now=context(16, target_entropy=0.0)))
    assert policy.propose(context(16, target_entropy=2.8), uniform=0.0).horizon == 4  # 0.98
    assert policy.propose(context(16, target_entropy=3.0), uniform=0.0).horizon == 1  # 1.05


def test_cascade() -> None:
    """Four rounds each of 0, 1, 2, 4, 8, then 64 of the best by tokens per second, then again; 0 where nothing pays."""

    def horizons(stands: float, rounds: int, cost: float) -> list[int]:
        world = World(stands=lambda _, __: stands, limit=lambda _: 16, ends=0.0, seconds=lambda k: 1.0 + cost * k)
        return [told.drafted for told in play(Cascade(), rounds, seed=1, world=world)]

    tests = [horizon for horizon in (0, 1, 2, 4, 8) for _ in range(4)]
    assert horizons(1.0, 104, 0.1) == tests + [8] * 64 + tests
    assert horizons(0.0, 104, 0.1) == tests + [0] * 64 + tests


STOPS: dict[str, tuple[StopRule, dict[str, float], dict[str, float]]] = {
    "kangaroo": (kangaroo().rule, {"top_prob": 0.6}, {"top_prob": 0.59}),
    "svip": (svip().rule, {"entropy": 0.599}, {"entropy": 0.601}),
    "transformers": (DynamicConfidence().stop_for(context()), {"prob": 0.4}, {"prob": 0.39}),
    "margin": (Margin(0.2), {"margin": 0.2}, {"margin": 0.19}),
    "specdec": (SpecDec(shortest=1).stop_for(context()), {"prob": 0.701}, {"prob": 0.699}),
    "specdec, confidence": (SpecDec(shortest=1).stop_for(context()), {"confidence": 0.71, "prob": 0.1},
                            {"confidence": 0.69, "prob": 0.9}),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "goes_on", "stops"), STOPS.values(), ids=STOPS.keys())
def test_rules_that_keep_the_token(rule: StopRule, goes_on: dict[str, float], stops: dict[str, float]) -> None:
    """Published thresholds; the token that stops the draft is in it. Catches a rule that reads another number."""
    sure = law(confidence=1.0, prob=1.0, top_prob=1.0, margin=1.0, entropy=0.0)
    calm, wary = law(**goes_on), law(**stops)
    assert rule.exact
    assert drawn_under(rule, [calm, sure, sure]) == (calm, sure, sure)
    assert drawn_under(rule, [sure, wary, sure]) == (sure, wary)


def test_rules_that_look_before() -> None:
    """AdaEDL draws no token whose law promises too little, but always a first one; llama.cpp none at all."""
    bound = AcceptanceBound(0.2, 0.4)  # 1 - sqrt(0.2 H) >= 0.4 up to H = 1.8
    low, high = law(entropy=1.79), law(entropy=1.81)
    assert drawn_under(bound, [high, low, high, low]) == (high, low)
    gate = TopProbabilityGate(0.9, 2)
    assert drawn_under(gate, [law(top_prob=0.9)] * 2 + [law(top_prob=0.89)]) == (law(top_prob=0.9),) * 2
    assert drawn_under(gate, [law(top_prob=0.9), law(top_prob=0.89)]) == ()  # fewer than n_min: given up
    assert drawn_under(EntropyRise(0.5), [law(entropy=0.1), law(entropy=0.5), law(entropy=1.1), law()])[-1] == law(
        entropy=1.1
    )
    assert llama_cpp().cap == 3 and svip().cap == 40 and kangaroo().cap == 6


def test_specdec_multiplies() -> None:
    """1 - prod of acceptance exceeds 0.3 with the third of 0.88; at least two tokens. Catches a look at one token."""
    rule = SpecDec().stop_for(context())
    assert len(drawn_under(rule, [law(prob=0.88)] * 9)) == 3
    assert len(drawn_under(rule, [law(prob=0.1)] * 9)) == 2


def test_best_threshold_by_brute_force() -> None:
    """All thresholds of the sample tried with the rates counted anew. Catches ties in scores and a swapped class."""
    rng = random.Random(3)
    for _ in range(60):
        sample = [(rng.choice((0.1, 0.3, 0.5, 0.7, rng.random())), rng.random() < 0.6) for _ in range(12)]
        sample += [(rng.random(), True), (rng.random(), False)]
        good, bad = [p for p, stood in sample if stood], [p for p, stood in sample if not stood]
        costs = {
            t: sum(p >= t for p in bad) / len(bad) + 3.0 * (1.0 - sum(p >= t for p in good) / len(good))
            for t, _ in sample
        }
        best = min(costs.values())
        assert best_threshold(sample) in {t for t, cost in costs.items() if cost <= best + 1e-12}


def test_dynamic_confidence_learns_from_judged_tokens() -> None:
    """Tokens behind the rejection are not judged, and six are needed with both kinds among them."""
    policy = DynamicConfidence()
    probs = (0.9, 0.8, 0.75, 0.95, 0.3, 0.99, 0.2)
    choice = policy.propose(context(7), uniform=0.0)
    policy.observe(feedback(choice, 4, drawn=tuple(law(prob=p) for p in probs)))
    assert policy.current_threshold == 0.4  # five judged: four accepted and the fifth rejected
    policy.observe(feedback(choice, 1, drawn=(law(prob=0.6), law(prob=0.5))))
    assert policy.current_threshold == 0.6  # the least of the accepted, above both rejected


def test_adaedl_follows_the_accept_rate() -> None:
    """Below 0.9 lambda rises by (1 - 0.9) 0.01, above it falls, and a full draft of the cap leaves it."""
    policy = AdaEDL(cap=4)
    seen = []
    for accepted, drafted in ((1, 2), (2, 2), (2, 2), (2, 2), (2, 2), (4, 4)):
        choice = policy.propose(context(4), uniform=0.0)
        policy.observe(feedback(choice, accepted, drawn=(law(),) * drafted))
        rule = policy.propose(context(4), uniform=0.0).stop
        assert isinstance(rule, AcceptanceBound)
        seen.append(round((rule.threshold - 0.4) * 1000, 6))
    # accept rates 0.5, 0.75, 0.875, 0.94, 0.97, 0.98
    assert seen == [1.0, 2.0, 3.0, 2.0, 1.0, 1.0]


class TestWindowedSurvival:
    """The deciding ablation."""

    def rounds(self, policy: WindowedSurvival, accepted: Sequence[int], drafted: int) -> None:
        """Rounds of one length, whatever the policy would choose; times as the table says."""
        for count in accepted:
            choice = StoppingPolicy("fixed", Margin(-1.0), cap=drafted).propose(context(16), uniform=0.0)
            policy.observe(feedback(choice, count, drafted=drafted, now=context(16), seconds=1.0 + 0.2 * drafted))

    def test_hazards_are_counted(self) -> None:
        """Rejections over trials of each place; deeper places as the last one tried."""
        policy = WindowedSurvival(costs=TABLE)
        self.rounds(policy, [3, 3, 1, 0], drafted=3)
        assert policy.hazards(5) == pytest.approx([1 / 4, 1 / 3, 0.0, 0.0, 0.0])

    def test_the_window_forgets(self) -> None:
        """Twenty trials of a place; the running mean has 5 % for each."""
        policy = WindowedSurvival(costs=TABLE)
        self.rounds(policy, [0] * 30 + [1] * 20, drafted=1)
        assert policy.hazards(1) == [0.0]
        mean = WindowedSurvival(costs=TABLE, window=None, prior_hazard=0.2)
        self.rounds(mean, [0, 1], drafted=1)
        assert mean.hazards(2) == pytest.approx([(0.2 * 0.95 + 0.05) * 0.95] * 2)

    def test_the_best_ratio_is_chosen(self) -> None:
        """By brute force over all horizons with the costs of the table."""
        policy = WindowedSurvival(costs=KNEE)
        for stood in ([0, 2, 1, 2, 2], [1, 1, 0], [2, 2, 2, 2]):
            self.rounds(policy, stood, drafted=2)
            hazards = policy.hazards(6)
            tokens = [1.0 + sum(math.prod(1 - h for h in hazards[:j]) for j in range(1, k + 1)) for k in range(7)]
            ratios = [gain / cost for gain, cost in zip(tokens, KNEE.seconds(6), strict=True)]
            assert policy.propose(context(6), uniform=0.5).horizon == max(range(1, 7), key=ratios.__getitem__)

    def test_a_missing_table_trims_nothing_and_is_filled(self) -> None:
        """A flat table makes the search verify everything, for ever (sglang pull request 35413)."""
        world = World(stands=lambda _, __: 0.4, limit=lambda _: 8, ends=0.0)
        lengths = [told.drafted for told in play(WindowedSurvival(), 80, seed=2, world=world)]
        assert lengths[:3] == [8, 8, 8]
        assert max(lengths[40:]) < 8
        flat = CostTable.from_profile([(k, 1.0) for k in range(9)] * 40)
        same = World(stands=lambda _, __: 0.4, limit=lambda _: 8, ends=0.0, seconds=lambda _: 1.0)
        assert {told.drafted for told in play(WindowedSurvival(costs=flat), 40, seed=2, world=same)[20:]} <= {6, 7, 8}

    def test_periods_and_hysteresis(self) -> None:
        """A horizon is held for ten rounds, and against gains that are too small."""
        world = World(stands=lambda index, _: 0.9 if index < 45 else 0.3, limit=lambda _: 8, ends=0.0)
        lengths = [
            told.drafted for told in play(WindowedSurvival(costs=TABLE, decide_every=10), 90, seed=3, world=world)
        ]
        assert all(len(set(lengths[start : start + 10])) == 1 for start in range(10, 90, 10))
        assert len(set(lengths[10:])) > 1
        changes = {}
        for hysteresis in (0.0, 0.1):
            held = play(WindowedSurvival(costs=TABLE, hysteresis=hysteresis), 90, seed=3, world=world)
            changes[hysteresis] = sum(a.drafted != b.drafted for a, b in pairwise(held))
        assert 0 < changes[0.1] < changes[0.0]

    def test_exploration_drafts_the_limit(self) -> None:
        """With probability epsilon, announced in the propensities; the floor is then 0."""
        policy = WindowedSurvival(costs=TABLE, epsilon=0.1)
        self.rounds(policy, [0] * 20, drafted=1)
        idle, curious = (policy.propose(context(4), uniform=coin) for coin in (0.1, 0.099))
        assert (idle.horizon, curious.horizon, curious.explored) == (0, 4, True)
        assert idle.propensities == (0.1,) * 4


def test_ucb_index_by_hand() -> None:
    """Two arms, costs equal: rewards 1/2 and 1 at most. Arm 2 pays best unless arm 1 was tried much less often."""
    policy = UpperConfidence(costs=CHEAP, arms=(1, 3))
    payments: dict[int, list[float]] = {1: [], 3: []}
    best = max((1 + k) / cost for k, cost in enumerate(CHEAP.seconds(16)))
    rng = random.Random(5)
    for _ in range(200):
        arm = policy.propose(context(16), uniform=0.0).horizon
        if all(payments.values()):
            plays = sum(map(len, payments.values()))
            index = {a: sum(p) / len(p) + math.sqrt(2.0 * math.log(plays) / len(p)) for a, p in payments.items()}
            assert arm == max(index, key=index.__getitem__)
        accepted = sum(rng.random() < 0.8 for _ in range(arm))
        payments[arm].append((1 + accepted) / best)
        policy.observe(feedback(policy.propose(context(16), uniform=0.0), accepted, seconds=1.0))
    assert len(payments[3]) > len(payments[1]) > 10


def test_the_released_bonus_is_the_same_for_all_arms() -> None:
    """BanditSpec's bonus over all plays makes the choice greedy: an unlucky start settles it. Counts per arm do not."""
    worlds = World(stands=lambda index, _: 0.0 if index < 28 else 1.0, limit=lambda _: 8, ends=0.0)
    released = [t.drafted for t in play(bandit_spec(costs=TABLE, as_released=True), 400, seed=1, world=worlds)]
    repaired = [t.drafted for t in play(bandit_spec(costs=TABLE), 400, seed=1, world=worlds)]
    assert released[:28] == repaired[:28] == [arm for arm in (1, 2, 3, 4) for _ in range(7)]
    assert set(released[28:]) == {1}
    assert set(repaired[28:]) == {1, 2, 3, 4}


def test_discounting_follows_a_change() -> None:
    """600 rounds in which everything stands, then 300 in which nothing does: the discounted bandit stops sooner."""
    world = World(stands=lambda index, _: 1.0 if index < 600 else 0.0, limit=lambda _: 8, ends=0.0)
    late = {}
    for discount in (0.99, 1.0):
        told = play(UpperConfidence(costs=TABLE, discount=discount), 900, seed=1, world=world)
        late[discount] = sum(each.drafted for each in told[600:])
    assert late[0.99] < 0.8 * late[1.0], late


@pytest.mark.parametrize("side_information", [False, True])
def test_exp3_estimates_are_unbiased(side_information: bool) -> None:
    """Over its own coin and the accepted count, each arm's estimate grows by the reward that it would have been paid.

    Catches a division by the probability of the arm instead of that of being told, and arms that are never told.
    """
    costs = CostTable.from_profile([(k, 1.0 + 0.5 * k) for k in range(5)])
    learned = EXP3(costs=costs, arms=(0, 1, 2, 4), side_information=side_information)
    play(learned, 30, seed=1, world=World(limit=lambda _: 4, ends=0.0, seconds=lambda k: 1.0 + 0.5 * k))
    best = max((1 + k) / (1.0 + 0.5 * k) for k in range(5))
    before = learned.totals
    for stands in range(5):
        grown = dict.fromkeys(learned.arms, 0.0)
        reached = (1.0, *learned.propose(context(4), uniform=0.0).propensities, 0.0)
        # the coin's cells: arms in order, each as wide as it is likely
        edges = [0.0, *(1.0 - reached[following] for following in (1, 2, 3, 5))]
        for arm, (low, high) in zip(learned.arms, pairwise(edges), strict=True):
            choice = learned.propose(context(4), uniform=(low + high) / 2.0)
            assert choice.horizon == arm
            branch = EXP3(costs=costs, arms=learned.arms, side_information=side_information)
            branch.observe(feedback(choice, min(stands, arm), now=context(4), seconds=1.0 + 0.5 * arm))
            for told, total in branch.totals.items():
                grown[told] += (high - low) * total
        expected = {arm: (1 + min(arm, stands)) / (1.0 + 0.5 * arm) / best for arm in learned.arms}
        assert grown == pytest.approx(expected, rel=1e-9)
    assert learned.totals == before


def test_exp3_side_information_needs_fewer_rounds() -> None:
    """A rejection tells about every arm, so estimates vary less."""
    world = World(stands=lambda _, __: 0.6, limit=lambda _: 8, ends=0.0)
    spread = {}
    for side in (False, True):
        finals = []
        for seed in range(8):
            policy = EXP3(costs=TABLE, side_information=side)
            play(policy, 150, seed=seed, world=world)
            finals.append(policy.totals[4])
        spread[side] = float(np.std(finals))
    assert spread[True] < 0.5 * spread[False]


def test_lin_ucb_is_ridge_regression() -> None:
    """The arm chosen is that of the normal equations, solved anew in every round."""
    policy = LinUCB(costs=CHEAP, arms=(1, 4))
    best = max((1 + k) / cost for k, cost in enumerate(CHEAP.seconds(16)))
    rows: dict[int, list[list[float]]] = {1: [], 4: []}
    paid: dict[int, list[float]] = {1: [], 4: []}
    rng = random.Random(2)
    mean, last_reject = 0.0, 0
    for _ in range(60):
        entropy = rng.choice((0.1, 2.0))
        now = context(8, target_entropy=entropy, target_margin=0.3)
        features = np.array([1.0, mean / 8, entropy, 0.3, last_reject / 8])
        bounds = {}
        for arm in (1, 4):
            design = np.array(rows[arm]).reshape(-1, 5)
            gram = np.eye(5) + design.T @ design
            theta = np.linalg.solve(gram, design.T @ np.array(paid[arm]))
            bounds[arm] = features @ theta + math.sqrt(features @ np.linalg.solve(gram, features))
        choice = policy.propose(now, uniform=0.0)
        assert choice.horizon == max(bounds, key=bounds.__getitem__)
        accepted = choice.horizon if entropy < 1.0 else 0
        rows[choice.horizon].append(list(features))
        paid[choice.horizon].append((1 + accepted) / best)
        policy.observe(feedback(choice, accepted, now=now))
        mean += 0.25 * (accepted - mean)
        last_reject = accepted + 1 if accepted < choice.horizon else last_reject


def test_tapout_finds_the_rule_that_pays() -> None:
    """Drafts stand exactly while the top probability is high; a rule that sees it wastes fewer drafts."""
    rng = random.Random(4)
    policy = TapOut(arms=(NeverStop(), TopProbability(0.6)))
    plays: list[StopRule | None] = []
    for _ in range(600):
        choice = policy.propose(context(8), uniform=0.0)
        drawn = drawn_under(choice.stop, [law(top_prob=rng.choice((0.9, 0.3))) for _ in range(8)])
        stood = [token.law.top_prob > 0.6 for token in drawn]
        policy.observe(feedback(choice, stood.index(False) if False in stood else len(stood), drawn=drawn))
        plays.append(choice.stop)
    assert 10 < plays.count(NeverStop()) < plays.count(TopProbability(0.6)) / 2


def test_admission() -> None:
    """A second peak behind a drop is found by the whole search only; budgets take the likeliest of the batch."""
    curves, seconds = [[0.9, 0.9], [0.5]], [1.0, 2.0, 2.1, 2.9]
    assert early_break(curves, seconds) == [0, 0]  # 2.0, 1.45, 1.81, 1.48
    assert best_total([[0.9, 0.9]], [1.0, 2.0, 2.1]) == [2]  # 1.0, 0.95, 1.33
    assert by_budget(curves, 2) == [2, 0]
    assert by_budget([[0.5], [0.5]], 1) == [1, 0]
    with pytest.raises(ForerunError, match="3 drafts need 4 costs"):
        early_break(curves, [1.0, 2.0])


def test_logistic_regression_is_a_minimum() -> None:
    """The objective's numeric derivative is 0 there. Catches weights or the ridge left out of the gradient."""
    rng = np.random.default_rng(1)
    rows = np.column_stack([np.ones(40), rng.normal(size=40)])
    labels, weights = (rng.random(40) < 0.6).astype(float), rng.uniform(0.5, 6.0, size=40)
    start = np.array([1.5, 0.0])

    def objective(w: np.ndarray) -> float:
        logits = rows @ w
        losses = np.logaddexp(0.0, logits) - labels * logits
        return float(weights @ losses + 0.25 * ((w - start) ** 2).sum())

    found = fit_logistic(rows, labels, weights, ridge=0.5, start=start)
    for axis in np.eye(2):
        slope = (objective(found + 1e-5 * axis) - objective(found - 1e-5 * axis)) / 2e-5
        assert abs(slope) < 1e-5


def test_an_acceptance_head_learns_what_its_rounds_show() -> None:
    """Drafts stand where the margin is large. Catches labels of the wrong class, and tokens behind a rejection."""
    rng = random.Random(6)
    told: list[RoundFeedback] = []
    policy = kangaroo(threshold=0.0, cap=4)
    for _ in range(200):
        drawn = tuple(law(margin=rng.random()) for _ in range(4))
        stood = [rng.random() < token.law.margin for token in drawn]
        accepted = stood.index(False) if False in stood else 4
        told.append(feedback(policy.propose(context(4), uniform=0.0), accepted, drawn=drawn))
    head = AcceptanceHead.fit(told, mismatch_weight=1.0)
    for place in (1, 3):
        assert head.probability(law(margin=0.95), place) > 0.8
        assert head.probability(law(margin=0.05), place) < 0.25
    assert AcceptanceHead.fit(told).probability(law(margin=0.5), 1) < head.probability(law(margin=0.5), 1)
    with pytest.raises(ForerunError, match="no drawn token was judged"):
        AcceptanceHead.fit([])


def test_calibration_is_learned_by_place() -> None:
    """300 rounds of warm-up draft everything; then the fitted survivals are those of the world."""
    rng = random.Random(7)
    policy = CalibratedScheduler(costs=TABLE)
    for index in range(400):
        choice = policy.propose(context(3), uniform=0.0)
        assert choice.horizon == 3
        confidence = rng.choice((0.2, 0.9))
        drawn = drawn_under(choice.stop, [law(confidence=confidence)] * 3)
        assert len(drawn) == 3 or index >= 300
        stood = [rng.random() < (confidence if place == 0 else 0.5) for place in range(len(drawn))]
        accepted = stood.index(False) if False in stood else len(drawn)
        policy.observe(feedback(choice, accepted, drawn=drawn, seconds=1.0 + 0.2 * len(drawn)))
    rule = policy.propose(context(3), uniform=0.0).stop
    assert isinstance(rule, ThroughputStop)
    for confidence in (0.2, 0.9):
        first, second = rule.calibration.survivals([law(confidence=confidence).law] * 2)
        assert first == pytest.approx(confidence, abs=0.1)
        assert second / first == pytest.approx(0.5, abs=0.15)


def test_evidence_is_the_margin_of_logarithms_without_a_confidence() -> None:
    """log(0.6 / 0.2) from top probability and margin; certain laws stay finite."""
    assert evidence_of(law(top_prob=0.6, margin=0.4).law) == pytest.approx(math.log(3.0))
    assert evidence_of(law(top_prob=1.0, margin=1.0).law) == 12.0
    assert evidence_of(law(confidence=0.0).law) == -12.0
    assert Calibration(((0.0, 1.0),)).survivals([law(confidence=0.8).law] * 2) == pytest.approx([0.8, 0.64])


WRONG: dict[str, Callable[[], object]] = {
    "start": lambda: HeuristicSchedule(start=0),
    "climb": lambda: Staircase(climb=()),
    "censored mean": lambda: CensoredEMA(alpha=0.0),
    "ladders": lambda: EMATiers(ladders=((8, (1,)),)),
    "ladder": lambda: EMATiers(ladders=((1, (3, 1)),)),
    "entropy switch": lambda: EntropySwitch(cuts=(1.0, 0.5)),
    "horizons": lambda: Cascade(horizons=(2, 1)),
    "phases": lambda: Cascade(test_rounds=0),
    "cap": lambda: llama_cpp(n_max=0),
    "dynamic confidence": lambda: DynamicConfidence(threshold=1.5),
    "AdaEDL": lambda: AdaEDL(gamma=0.0),
    "window": lambda: WindowedSurvival(window=0),
    "epsilon": lambda: WindowedSurvival(epsilon=1.5),
    "bandit": lambda: UpperConfidence(arms=()),
    "EXP3": lambda: EXP3(arms=(1,)),
    "LinUCB": lambda: LinUCB(ridge=0.0),
    "TapOut": lambda: TapOut(arms=(TopProbabilityGate(0.5, 3),)),
    "SpecDec": lambda: SpecDec(shortest=5, longest=2),
    "warmup_fits": lambda: CalibratedScheduler(warmup_fits=-1),
}


@pytest.mark.parametrize(("what", "make"), WRONG.items(), ids=WRONG.keys())
def test_parameters_out_of_range_are_refused(what: str, make: Callable[[], object]) -> None:
    """One line that names the parameter."""
    with pytest.raises(ForerunError) as caught:
        make()
    assert what in str(caught.value) and "\n" not in str(caught.value)


def test_table_bandit() -> None:
    """Each cell plays every arm once, in order, and then its own best; cells share nothing.

    Sharp contexts accept everything, flat ones nothing. Catches one bandit for all cells, terciles that count the round
    in question, and batch sizes that are not bucketed.
    """
    policy = TableBandit(arms=(0, 1, 4), weight=0.0)
    rng = random.Random(1)
    for index in range(300):
        entropy = (0.1, 1.0, 3.0)[index % 3] + 0.01 * rng.random()
        now = context(8, target_entropy=entropy, batch_size=1 + index % 2)
        choice = policy.propose(now, uniform=0.5)
        stands = choice.horizon if entropy < 0.5 else 0
        policy.observe(feedback(choice, stands, now=now, seconds=1.0 + 0.2 * choice.horizon))
    for size, entropy, expected in ((1, 0.1, 4), (1, 3.0, 0), (2, 0.1, 4), (3, 0.1, 4), (3, 3.5, 0)):
        now = context(8, target_entropy=entropy, batch_size=size)
        assert policy.propose(now, uniform=0.5).horizon == expected, (size, entropy)
    assert policy.propose(context(8, target_entropy=0.1, batch_size=4), uniform=0.5).horizon == 0  # never seen
    assert policy.cell(context(8, target_entropy=None, batch_size=7)) == (3, 1)
    fresh = TableBandit(arms=(0, 1, 4))
    assert through(fresh, [0, 0, 0]) == [0, 1, 4, 0]
