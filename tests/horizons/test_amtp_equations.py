"""AMTP beside its own equations, written out position by position: every decision and every learned number."""

import itertools
import math
import random
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from forerun.horizons import (
    AMTP,
    HIDDEN_DIMS,
    Ablation,
    Choice,
    CostTable,
    FeatureLevel,
    Objective,
    RoundContext,
    RoundFeedback,
    Schedule,
    TokenClass,
)
from tests.support.speed import without_shape_checks

# Sums and products of a few dozen numbers of size 1, a few hundred AdaGrad steps: other orders differ by less.
TOLERANCE = 1e-11
COSTS = [1.0, 1.3, 1.35, 1.4, 1.45, 1.9, 1.95, 2.0, 2.05, 2.7, 2.75, 2.8]
LIMIT = len(COSTS) - 1
WARMUP, PRIOR, EPSILON, CLIP, IDLE_FACTOR, IDLE_ROUNDS, RATE = 16, 0.2, 0.1, 6.0, 5.0, 64, 0.2


@dataclass
class Equations:
    """AMTP's practice mode as the guide and the paper state it; `settings` are those of `AMTP`."""

    level: FeatureLevel
    soft: bool
    objective: Objective
    schedule: Schedule
    pads: tuple[int, ...]
    ablation: Ablation | None
    rounds: int = 0
    informative: list[dict[str, Any]] = field(default_factory=list)
    tokens: float = 0.0
    seconds: float = 0.0
    bias: dict[int, float] = field(default_factory=dict)
    slope: dict[int, float] = field(default_factory=dict)
    squares: dict[tuple[str, int], float] = field(default_factory=dict)

    def running_mean(self, key: str, alpha: float) -> float:
        """A plain mean at first, then one that forgets."""
        mean = 0.0
        for index, past in enumerate(self.informative, 1):
            mean += max(alpha, 1.0 / index) * (past[key] - mean)
        return mean

    def features(self, now: RoundContext) -> list[float]:
        """The shared features of the table in `features.py`."""
        if self.level is FeatureLevel.F0:
            return []
        values = [0.0] * 7
        if self.informative:
            since = 0
            for past in self.informative:
                since = 0 if past["rejected_at"] is not None else since + 1
            ends = [past for past in self.informative if past["rejected_at"] is not None or past["whole"]]
            mismatches = [past["mismatch"] for past in self.informative]
            values[0] = 2.0 * self.running_mean("rate", 0.3) - 1.0
            values[1] = 2.0 * self.running_mean("rate", 0.03) - 1.0
            if ends:
                at = ends[-1]["rejected_at"]
                values[2] = math.log2(ends[-1]["drafted"] + 1 if at is None else at) / 2.0 - 1.0
                values[3] = -1.0 if at is None else 1.0
            values[4] = math.log2(1 + since) / 2.0 - 1.0
            values[5] = 2.0 * mismatches[-1] - 1.0
            swing = None
            for before, after in itertools.pairwise(mismatches):
                move = abs(after - before)
                swing = move if swing is None else 0.7 * swing + 0.3 * move
            values[6] = 0.0 if swing is None else 2.0 * swing - 1.0
        values.append((math.log2(1 + now.context_length) - 10.0) / 5.0)
        values.append((math.log2(1 + now.generated) - 5.0) / 5.0)
        values.append(min(now.temperature, 2.0) - 1.0)
        if self.level is FeatureLevel.F1:
            return values
        values.append(0.0 if now.target_entropy is None else 1.0 - 2.0 * math.exp(-now.target_entropy))
        values.append(0.0 if now.target_top_prob is None else 2.0 * now.target_top_prob - 1.0)
        values.append(0.0 if now.target_margin is None else 2.0 * now.target_margin - 1.0)
        values.append(float(now.last_token_repeats))
        values.append(0.0 if now.suffix_match is None else math.log2(1 + now.suffix_match) / 2.0 - 1.0)
        values += [float(now.token_class is kind) for kind in TokenClass]
        if self.level is FeatureLevel.F2:
            return values
        return values + [0.0 if now.hidden is None else now.hidden[index] / 2.0 for index in range(HIDDEN_DIMS)]

    def own_feature(self, now: RoundContext, position: int) -> float:
        """Of one position, at level F4."""
        margins = now.draft_margins or ()
        known = self.level is FeatureLevel.F4 and position <= len(margins)
        return 1.0 - 2.0 * math.exp(-margins[position - 1]) if known else 0.0

    def log_odds(self, shared: list[float], own: float, position: int) -> float:
        """Of a rejection at a position, before the clip; the own feature's slope is the last one."""
        total = self.bias.get(position, math.log(PRIOR / (1.0 - PRIOR))) + self.slope.get(len(shared), 0.0) * own
        return total + sum(self.slope.get(index, 0.0) * value for index, value in enumerate(shared))

    def hazard(self, shared: list[float], own: float, position: int) -> float:
        """Clipped to [0.001, 0.999]."""
        odds = math.exp(-self.log_odds(shared, own, position))
        return min(max(1.0 / (1.0 + odds), 1e-3), 1.0 - 1e-3)

    def propose(self, now: RoundContext, uniform: float) -> dict[str, Any]:
        """The decision and everything behind it."""
        shared = self.features(now)
        warm = self.rounds < WARMUP
        hazards = [
            PRIOR if warm else self.hazard(shared, self.own_feature(now, position), position)
            for position in range(1, now.limit + 1)
        ]
        survival = [math.prod(1.0 - hazard for hazard in hazards[:j]) for j in range(1, now.limit + 1)]
        gains = [1.0 + sum(survival[:k]) for k in range(now.limit + 1)]
        ratios = [gain / cost for gain, cost in zip(gains, COSTS, strict=False)]
        rate = self.tokens / self.seconds if self.rounds else max(ratios)
        profits = [gain - rate * cost for gain, cost in zip(gains, COSTS, strict=False)]
        ratio, renewal = ratios.index(max(ratios)), profits.index(max(profits))
        planned = ratio if self.objective is Objective.RATIO else renewal
        epsilon = EPSILON * (1.0 if self.schedule is Schedule.CONSTANT else (self.rounds + 1) ** -0.2)
        if planned == 0 and len(self.informative) < IDLE_ROUNDS:
            epsilon *= IDLE_FACTOR
        padded = min([width - 1 for width in self.pads if width > planned][:1] or [planned])
        padded = max(min(padded, now.limit), planned)
        fill = epsilon + 0.5 * (1.0 - epsilon) if self.pads else epsilon  # pad_rate 1/2
        horizon = now.limit if uniform < epsilon else padded if uniform < fill else planned
        chances = [1.0 if j <= planned else fill if j <= padded else epsilon for j in range(1, now.limit + 1)]
        return {
            "horizon": horizon, "planned": planned, "ratio": ratio, "renewal": renewal, "survival": survival,
            "propensities": chances, "shared": shared, "epsilon": epsilon,
        }  # fmt: skip

    def observe(self, made: dict[str, Any], told: RoundFeedback) -> None:
        """One AdaGrad step on the survival-weighted log loss, then the history."""
        drafted = len(told.overlaps)
        counted = drafted if told.censored is None else told.censored
        rejected_at = told.accepted + 1 if told.accepted < counted else None
        self.rounds += 1
        emitted = told.accepted + 1 if told.censored is None else min(told.accepted + 1, max(told.censored, 1))
        alpha = max(0.01, 1.0 / self.rounds)
        self.tokens += alpha * (emitted - self.tokens)
        self.seconds += alpha * (told.seconds - self.seconds)
        weights, labels = [], []
        for position in range(1, counted + 1):
            weight = math.prod(told.accept_probabilities[: position - 1]) if self.soft else float(
                rejected_at is None or position <= rejected_at
            )  # fmt: skip
            if weight > 0.0:
                weights.append(weight)
                labels.append(1.0 - told.overlaps[position - 1] if self.soft else float(position == rejected_at))
        if self.ablation is Ablation.UNWEIGHTED_LOSS:
            steps = [(1.0, 1.0 - overlap) for overlap in told.overlaps[:counted]]
        else:
            steps = list(zip(weights, labels, strict=True))
        self.step(made, told.context, steps)
        if weights:
            self.informative.append(
                {
                    "rate": 1.0 - sum(w * y for w, y in zip(weights, labels, strict=True)) / sum(weights),
                    "mismatch": 1.0 - sum(told.overlaps[:counted]) / counted,
                    "rejected_at": rejected_at, "whole": counted == drafted, "drafted": drafted,
                }
            )  # fmt: skip

    def step(self, made: dict[str, Any], now: RoundContext, steps: list[tuple[float, float]]) -> None:
        """Every parameter by itself: parameter -= rate * g / sqrt(1 + sum of g^2)."""
        shared = made["shared"]
        gradient: dict[tuple[str, int], float] = {}
        for position, (weight, label) in enumerate(steps, 1):
            importance = min(1.0 / made["propensities"][position - 1], CLIP)
            if self.ablation is Ablation.NAIVE_POOLING:
                importance = 1.0
            own = self.own_feature(now, position)
            slope = importance * weight * (self.hazard(shared, own, position) - label)
            if abs(self.log_odds(shared, own, position)) >= math.log(999.0) - 1e-12:
                assert slope * self.log_odds(shared, own, position) > 0.0, "play no world that meets the clip's edge"
            gradient["bias", position] = slope
            for index, value in enumerate([*shared, own] if self.level is FeatureLevel.F4 else shared):
                gradient["slope", index] = gradient.get(("slope", index), 0.0) + slope * value
        for (kind, index), slope in gradient.items():
            total = self.squares[kind, index] = self.squares.get((kind, index), 1.0) + slope**2
            moved = self.bias if kind == "bias" else self.slope
            start = math.log(PRIOR / (1.0 - PRIOR)) if kind == "bias" else 0.0
            moved[index] = moved.get(index, start) - RATE * slope / math.sqrt(total)


def a_context(rng: random.Random, index: int) -> RoundContext:
    """Of a round, with something unknown now and then."""
    plain = RoundContext(
        limit=rng.choice([0, 1, 5, LIMIT, LIMIT, LIMIT]), context_length=20 + index, generated=index,
        temperature=rng.choice([0.0, 1.0, 3.0]),
    )  # fmt: skip
    if rng.random() < 0.1:
        return plain
    return replace(
        plain, target_entropy=rng.expovariate(1.5), target_top_prob=rng.random(), target_margin=rng.random(),
        last_token_repeats=rng.random() < 0.5, token_class=rng.choice(list(TokenClass)),
        suffix_match=rng.randrange(9), hidden=tuple(rng.gauss(0.0, 1.0) for _ in range(HIDDEN_DIMS)),
        draft_margins=tuple(3.0 * rng.random() for _ in range(rng.randrange(LIMIT + 1))),
    )  # fmt: skip


def a_round(rng: random.Random, choice: Choice, now: RoundContext, accept: float) -> RoundFeedback:
    """What verification might have said: short drafts, cuts and certain rejections included."""
    drafted = choice.horizon if rng.random() < 0.9 else rng.randrange(choice.horizon + 1)
    accepted = 0
    while accepted < drafted and rng.random() < accept:
        accepted += 1
    chance = [
        rng.uniform(2.0 * accept - 1.0, 1.0) if accept > 0.5 else 2.0 * accept * rng.random() for _ in range(drafted)
    ]
    return RoundFeedback(
        choice=choice, context=now, accepted=accepted, seconds=COSTS[drafted] * rng.lognormvariate(0.0, 0.1),
        accept_probabilities=tuple(0.0 if rng.random() < 0.02 else value for value in chance),
        overlaps=tuple(rng.uniform(0.1, 1.0) for _ in range(drafted)),
        censored=rng.randrange(drafted + 1) if rng.random() < 0.1 else None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("level", "soft", "objective", "schedule", "pads", "ablation"),
    [
        (FeatureLevel.F2, True, Objective.RATIO, Schedule.CONSTANT, (), None),
        (FeatureLevel.F3, False, Objective.RENEWAL, Schedule.ANYTIME, (1, 2, 4, 8), None),
        (FeatureLevel.F4, True, Objective.RATIO, Schedule.CONSTANT, (), Ablation.UNWEIGHTED_LOSS),
        (FeatureLevel.F1, False, Objective.RATIO, Schedule.ANYTIME, (4, 8), Ablation.NAIVE_POOLING),
        (FeatureLevel.F0, True, Objective.RENEWAL, Schedule.CONSTANT, (), None),
    ],
)
def test_decisions_and_weights_are_those_of_the_equations(
    level: FeatureLevel, soft: bool, objective: Objective, schedule: Schedule, pads: tuple[int, ...],
    ablation: Ablation | None,
) -> None:  # fmt: skip
    """300 rounds, up to three in flight; the oracle loops over positions and rebuilds its history from all rounds.

    Catches what a fast controller invites: a prediction kept after the weights have moved, features or propensities of
    another round, sums over the wrong positions, and a short round that moves the parameters of deeper ones.
    """
    rng = random.Random(f"{level} {soft}")
    policy = AMTP(
        costs=CostTable.from_profile(list(enumerate(COSTS))), learn_costs=False, objective=objective, features=level,
        soft_labels=soft, epsilon=EPSILON, schedule=schedule, pad_widths=pads, pad_rate=0.5, importance_clip=CLIP,
        ablation=ablation, prior_hazards=(PRIOR,), warmup_rounds=WARMUP, idle_factor=IDLE_FACTOR,
    )  # fmt: skip
    oracle = Equations(level, soft, objective, schedule, pads, ablation)
    flying: list[tuple[dict[str, Any], RoundFeedback]] = []
    with without_shape_checks():
        for index in range(300):
            now, coin = a_context(rng, index), rng.random()
            choice, made = policy.propose(now, uniform=coin), oracle.propose(now, coin)
            decided = (choice.horizon, choice.planned, choice.ratio_horizon, choice.renewal_horizon)
            assert decided == (made["horizon"], made["planned"], made["ratio"], made["renewal"]), index
            assert choice.explored is (coin < made["epsilon"] or made["horizon"] > made["planned"])
            assert choice.propensities == pytest.approx(made["propensities"], abs=TOLERANCE)
            assert choice.survival == pytest.approx(made["survival"], abs=TOLERANCE)
            flying.append((made, a_round(rng, choice, now, 0.8 if index % 100 < 70 else 0.3)))
            if len(flying) == 3 or rng.random() < 0.7:
                for made, told in flying:
                    policy.observe(told)
                    oracle.observe(made, told)
                flying.clear()
    state: Any = policy.state_dict()
    deepest = len(oracle.bias)
    assert deepest == LIMIT
    assert state["hazards"]["biases"] == pytest.approx([oracle.bias[j] for j in range(1, LIMIT + 1)], abs=TOLERANCE)
    assert state["hazards"]["slopes"] == pytest.approx(
        [oracle.slope[index] for index in range(len(oracle.slope))], abs=TOLERANCE
    )
