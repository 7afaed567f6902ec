"""Theory mode and ablations against definitions: gradients, projection, unbiasedness, and what ablations get wrong."""

import itertools
import json
import math
import random
from dataclasses import replace

import pytest

from forerun.errors import ForerunError
from forerun.horizons import (
    AMTP,
    Ablation,
    Choice,
    CostTable,
    DirectSurvival,
    FeatureLevel,
    Learner,
    Linear,
    Logistic,
    RoundContext,
    RoundFeedback,
    Schedule,
    survivals,
    theory_rates,
)
from forerun.horizons.evidence import Evidence, evidence, survival_evidence
from forerun.horizons.exploration import explored_horizon, padded_horizon, propensities
from forerun.horizons.linear_hazards import LinearHazards
from tests.support.speed import without_shape_checks

FEATURES = (0.5, -1.0, 0.25)
ITEMS = Evidence.of([(1.0, 0.0, 1.0), (0.7, 0.3, 1.0), (0.4, 1.0, 10.0)])
CONTEXT = RoundContext(limit=4, context_length=10, generated=1, temperature=1.0)


def linear(settings: Linear, num_features: int = 3) -> LinearHazards:
    return settings.start(num_features=num_features, position_feature=False, prior_hazards=(0.2, 0.4))


@pytest.mark.parametrize("slopes_per_position", [True, False])
def test_linear_step_is_the_gradient_step_of_the_square_loss(slopes_per_position: bool) -> None:
    """Finite differences of importance * weight * (value - label)^2 by every parameter, two steps, eta t^-1/2.

    Catches a clipped value in the gradient, a missing factor 2, weights or steps, and slopes of other positions.
    """
    settings = Linear(radius=100.0, step=0.01, decay=0.5, slopes_per_position=slopes_per_position)
    model = linear(settings)
    positions, width = 3, 3
    biases = [0.2, 0.4, 0.4]
    slopes = [[0.0] * width for _ in range(positions if slopes_per_position else 1)]

    def loss() -> float:
        total = 0.0
        for index, item in enumerate(ITEMS.items()):
            row = slopes[index if slopes_per_position else 0]
            value = biases[index] + math.fsum(a * b for a, b in zip(row, FEATURES, strict=True))
            total += item.importance * item.weight * (value - item.label) ** 2
        return total

    def derivative(values: list[float], index: int) -> float:
        kept, change = values[index], 1e-6
        sides = []
        for sign in (1.0, -1.0):
            values[index] = kept + sign * change
            sides.append(loss())
        values[index] = kept
        return (sides[0] - sides[1]) / (2.0 * change)

    for step in (1, 2):
        rows = [(values, [derivative(values, i) for i in range(len(values))]) for values in (biases, *slopes)]
        for values, gradient in rows:
            for i, slope in enumerate(gradient):
                values[i] -= settings.step * step**-0.5 * slope
        model.update(FEATURES, ITEMS)
        expected = [
            biases[j] + math.fsum(a * b for a, b in zip(slopes[j % len(slopes)], FEATURES, strict=True))
            for j in range(positions)
        ]
        assert all(0.0 < value < 1.0 for value in expected)  # nothing clipped, so predictions show the parameters
        assert model.predict(FEATURES, 3) == pytest.approx(expected, abs=1e-7)


def test_projection_is_onto_the_ball_around_the_start() -> None:
    """The nearest point of the ball lies on the ray to its centre; a step inside is left alone.

    Catches projection of each position alone, a ball around zero, and a projection that always scales.
    """
    free, bound = linear(Linear(radius=1e9, step=0.1)), linear(Linear(radius=0.3, step=0.1))
    for model in (free, bound):
        model.update(FEATURES, ITEMS)

    def parameters(model: LinearHazards) -> list[float]:
        state = json.loads(json.dumps(model.state_dict()))
        return [*state["bias_moves"], *state["slopes"]]

    far, near = parameters(free), parameters(bound)
    distance = math.hypot(*far)
    assert distance > 0.3
    assert near == pytest.approx([0.3 * value / distance for value in far])
    inside = linear(Linear(radius=distance * 1.01, step=0.1))
    inside.update(FEATURES, ITEMS)
    assert parameters(inside) == far


def test_theory_rates() -> None:
    """T^-1/5 and its step by hand; a longer path explores more. Catches exponents mixed up."""
    epsilon, step = theory_rates(32, path_length=0.0, diameter=3.0, gradient_bound=2.0)
    assert (epsilon, step) == pytest.approx((0.5, 1.5 * math.sqrt(0.5 / 32)))
    assert theory_rates(32, path_length=31.0, diameter=3.0, gradient_bound=2.0)[0] == 1.0
    assert theory_rates(100, diameter=3.0, gradient_bound=2.0, partial=False) == pytest.approx((0.0, 0.15))
    with pytest.raises(ForerunError):
        theory_rates(0, diameter=1.0, gradient_bound=1.0)


def test_padding_is_filled_with_its_propensity() -> None:
    """The coin by enumeration: every position is drafted exactly as often as its propensity says.

    Catches a pad coin drawn after the exploration coin's share was taken from it twice, and pads beyond the limit.
    """
    steps = 200
    for planned, limit, widths in itertools.product(range(6), (5, 7), ((1, 2, 4, 8), (3,), ())):
        if planned > limit:
            continue
        padded = padded_horizon(planned, limit, widths)
        next_width = min((width for width in widths if width >= planned + 1), default=planned + 1)
        assert padded == min(max(planned, next_width - 1), limit)
        rates = propensities(planned, limit, 0.1, padded=padded, pad_rate=0.25)
        drafted = [
            explored_horizon(planned, limit, step / steps, epsilon=0.1, padded=padded, pad_rate=0.25)
            for step in range(steps)
        ]
        for position in range(1, limit + 1):
            share = sum(horizon >= position for horizon in drafted) / steps
            assert share == pytest.approx(rates[position - 1], abs=1.5 / steps)


def test_anytime_schedule_and_pads_reach_the_choice() -> None:
    policy = AMTP(costs=CostTable.from_profile([(k, 1.0 + k) for k in range(5)]), prior_hazards=(0.99,), epsilon=0.4,
                  idle_factor=1.0, pad_widths=(4,), pad_rate=0.5)  # fmt: skip
    choice = policy.propose(CONTEXT, uniform=0.5)
    assert (choice.planned, choice.horizon, choice.explored) == (0, 3, True)
    assert choice.propensities == pytest.approx((0.7, 0.7, 0.7, 0.4))
    later = AMTP(epsilon=1.0, schedule=Schedule.ANYTIME, idle_factor=1.0)
    for count in range(3):
        choice = later.propose(CONTEXT, uniform=0.999)
        assert Schedule.ANYTIME.rate(1.0, count) == pytest.approx((count + 1) ** -0.2)
        later.observe(told(choice, (0.5,) * choice.horizon, (0.5,) * choice.horizon, 0))


def told(choice: Choice, accepts: tuple[float, ...], overlaps: tuple[float, ...], accepted: int) -> RoundFeedback:
    return RoundFeedback(
        choice=choice, context=CONTEXT, accepted=accepted, accept_probabilities=accepts, overlaps=overlaps, seconds=1.0
    )


def binary_rounds() -> list[tuple[float, RoundFeedback]]:
    """The paper's example: target (3/4, 1/4), draft fair; position 2 perfect after token 0, wrong after token 1."""
    choice = Choice(horizon=2, planned=2, explored=False, propensities=(1.0, 1.0))
    rounds = []
    for accepts, overlaps in (((1.0, 1.0), (0.75, 1.0)), ((0.5, 0.0), (0.75, 0.0))):
        passed = [accepts[0], accepts[0] * accepts[1]]
        for accepted, share in ((0, 1.0 - passed[0]), (1, passed[0] - passed[1]), (2, passed[1])):
            if share > 0.0:
                rounds.append((0.5 * share, told(choice, accepts, overlaps, accepted)))
    return rounds


def fitted(learner: Learner, *, soft: bool, ablation: Ablation | None = None) -> list[float]:
    """Hazards where the learner settles on the binary example, rounds in proportion to their probabilities."""
    policy = AMTP(
        learner=learner, features=FeatureLevel.F0, soft_labels=soft, warmup_rounds=0, ablation=ablation,
        epsilon=0.0, measure_every=None,
    )  # fmt: skip
    rounds = [feedback for share, feedback in binary_rounds() for _ in range(round(share * 4))]
    rng = random.Random(0)
    with without_shape_checks():
        for _ in range(500):
            rng.shuffle(rounds)
            for feedback in rounds:
                policy.observe(feedback)
    return list(policy.hazards(replace(CONTEXT, limit=2)))


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize(
    "learner", [Logistic(learning_rate=0.2), Linear(step=0.003), DirectSurvival(learning_rate=0.2)]
)
def test_every_learner_finds_one_third(learner: Learner, soft: bool) -> None:
    """1/4 and 1/3, hence G = 2.25. Catches unconditional labels (1/2), and evidence of another learner."""
    hazards = fitted(learner, soft=soft)
    assert hazards == pytest.approx([1 / 4, 1 / 3], abs=0.03), hazards
    assert 1.0 + sum(survivals(hazards)) == pytest.approx(2.25, abs=0.05)


def test_the_unweighted_loss_finds_one_half() -> None:
    """The ablation does what it says: mean mismatch 1/2 at position 2, G = 2.125."""
    hazards = fitted(Logistic(learning_rate=0.2), soft=True, ablation=Ablation.UNWEIGHTED_LOSS)
    assert hazards == pytest.approx([1 / 4, 1 / 2], abs=0.03), hazards
    assert 1.0 + sum(survivals(hazards)) == pytest.approx(2.125, abs=0.05)


@pytest.mark.parametrize("soft", [False, True])
def test_direct_survival_labels_are_unbiased(soft: bool) -> None:
    """By enumeration: the mean label is (3/4, 1/2), whichever kind. Catches labels that stop at the rejection."""
    totals = [0.0, 0.0]
    for share, feedback in binary_rounds():
        for index, item in enumerate(survival_evidence(feedback, soft=soft, importance_clip=math.inf).items()):
            assert item.weight == 1.0
            totals[index] += share * item.label
    assert totals == pytest.approx([0.75, 0.5])


HIDDEN_EASY, HIDDEN_HARD = (0.1, 0.1, 0.1, 0.1), (0.3, 0.4, 0.45, 0.5)


def pooled(ablation: Ablation | None, epsilon: float) -> list[float]:
    """Exact limit of a context-free fit: sum of importance * weight * label over sum of importance * weight.

    Two equally frequent contexts that the model cannot tell apart; the plan can: 4 tokens in the easy one, 1 in the
    hard one. Enumerates contexts, coin and accept bits.
    """
    tops, bottoms = [0.0] * 4, [0.0] * 4
    for hazards, planned in ((HIDDEN_EASY, 4), (HIDDEN_HARD, 1)):
        for explored, coin in ((True, epsilon), (False, 1.0 - epsilon)):
            horizon = 4 if explored else planned
            choice = Choice(
                horizon=horizon, planned=planned, explored=explored, propensities=propensities(planned, 4, epsilon)
            )
            reached = 1.0
            for accepted in range(horizon + 1):
                share = reached * (hazards[accepted] if accepted < horizon else 1.0)
                reached *= 1.0 - hazards[accepted] if accepted < horizon else 0.0
                items = evidence(
                    told(choice, (0.5,) * horizon, (0.5,) * horizon, accepted),
                    soft=False,
                    importance_clip=math.inf,
                    inverse_propensity=ablation is None,
                )
                for index, item in enumerate(items.items()):
                    tops[index] += 0.5 * coin * share * item.importance * item.weight * item.label
                    bottoms[index] += 0.5 * coin * share * item.importance * item.weight
    return [top / bottom for top, bottom in zip(tops, bottoms, strict=True)]


def test_naive_pooling_underestimates_deep_hazards() -> None:
    """IPW gives the true pooled hazards, 1 - s_j / s_{j-1} of the mean survivals; naive pooling is far below from 2 on.

    Catches importance weights on the wrong positions, and an ablation that leaves them in.
    """
    curves = [[1.0, *survivals(list(hazards))] for hazards in (HIDDEN_EASY, HIDDEN_HARD)]
    mean = [sum(values) for values in zip(*curves, strict=True)]
    true = [1.0 - after / before for before, after in itertools.pairwise(mean)]
    assert pooled(None, 0.1) == pytest.approx(true, abs=1e-12)
    naive = pooled(Ablation.NAIVE_POOLING, 0.1)
    assert naive[0] == pytest.approx(true[0], abs=1e-12)
    assert all(low < 0.6 * right for low, right in zip(naive[1:], true[1:], strict=True)), (naive, true)


@pytest.mark.parametrize("learner", [Linear(), Linear(slopes_per_position=False), DirectSurvival()])
def test_saved_state_of_every_learner_continues_identically(learner: Learner) -> None:
    """Through JSON text; another learner's state is refused."""
    rng = random.Random(3)
    table = CostTable.from_profile([(k, 1.0 + 0.3 * k) for k in range(5)])
    policy = AMTP(costs=table, learner=learner, epsilon=0.2)

    def play(one: AMTP, uniform: float, accept: float) -> Choice:
        choice = one.propose(CONTEXT, uniform=uniform)
        one.observe(told(choice, (accept,) * choice.horizon, (accept,) * choice.horizon, choice.horizon // 2))
        return choice

    for _ in range(40):
        play(policy, rng.random(), rng.random())
    again = AMTP(costs=table, learner=learner, epsilon=0.2)
    again.load_state_dict(json.loads(json.dumps(policy.state_dict(), allow_nan=False)))
    for _ in range(40):
        uniform, accept = rng.random(), rng.random()
        assert play(policy, uniform, accept) == play(again, uniform, accept)
    with pytest.raises(ForerunError, match="learner is"):
        AMTP(costs=table).load_state_dict(policy.state_dict())
