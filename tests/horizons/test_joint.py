"""Horizons of a batch: the search against brute force, the joint policy against its parts."""

import itertools
import json
import random

import numpy as np
import pytest

from forerun.errors import ForerunError
from forerun.horizons import (
    Choice,
    CostSurface,
    Drafting,
    DraftTime,
    FeatureLevel,
    JointAMTP,
    PassTime,
    RoundContext,
    RoundFeedback,
    Seat,
    Shape,
    bucketed,
    ragged,
    uniform,
)


def worlds(seed: int) -> tuple[np.ndarray, list[int], list[float], list[float]]:
    """Few requests, ragged limits, ties, staircase costs that are far from convex."""
    rng = random.Random(seed)
    rows, width = rng.choice(((1, 4), (2, 3), (3, 3), (2, 4)))
    limits = [rng.randrange(width + 1) for _ in range(rows)]
    survivals = np.zeros((rows, width))
    for row in range(rows):
        reached = 1.0
        for position in range(limits[row]):
            reached *= rng.choice((1.0, 0.9, 0.75, 0.5, rng.random()))
            survivals[row, position] = reached
    verify = [1.0 + rng.random()]
    for _ in range(rows * width):
        verify.append(verify[-1] + rng.choice((0.0, 0.0, 0.05, 0.6)))
    draft = [0.0]
    for _ in range(width):
        draft.append(draft[-1] + rng.choice((0.02, 0.2, 0.7)))
    return survivals, limits, verify, draft


def rate(survivals: np.ndarray, horizons: tuple[int, ...], verify: list[float], draft: list[float] | None) -> float:
    """Expected tokens per second, by definition."""
    tokens = sum(1.0 + float(row[:horizon].sum()) for row, horizon in zip(survivals, horizons, strict=True))
    return tokens / (verify[sum(horizons)] + (0.0 if draft is None else draft[max(horizons)]))


def everything(limits: list[int]) -> list[tuple[int, ...]]:
    return list(itertools.product(*(range(limit + 1) for limit in limits)))


@pytest.mark.parametrize("seed", range(40))
def test_ragged_is_the_global_maximum(seed: int) -> None:
    """All combinations, with and without rectangular drafting.

    Catches a search that stops at the first descent, a position taken before its predecessor, and a draft cost of
    another depth than is used.
    """
    survivals, limits, verify, draft = worlds(seed)
    for drafting in (None, draft):
        found = ragged(survivals, verify, draft_seconds=drafting)
        best = max(rate(survivals, horizons, verify, drafting) for horizons in everything(limits))
        assert rate(survivals, found.horizons, verify, drafting) == pytest.approx(best, rel=1e-12)
        assert all(horizon <= limit for horizon, limit in zip(found.horizons, limits, strict=True))
        if drafting is None:
            assert found.rate == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_uniform_and_bucketed_against_brute_force(seed: int) -> None:
    """Uniform: the best k on any staircase. Buckets: the best of all mixtures where the cost is affine."""
    survivals, limits, verify, draft = worlds(seed)
    width = survivals.shape[1]
    one = uniform(survivals, verify, limits=limits, draft_seconds=draft)
    levels = [tuple(min(k, limit) for limit in limits) for k in range(width + 1)]
    assert one.horizons in levels
    assert one.rate == pytest.approx(max(rate(survivals, each, verify, draft) for each in levels), rel=1e-12)
    affine = [1.0 + 0.13 * n for n in range(len(verify))]
    for buckets in (2, 3):
        two = bucketed(survivals, affine, limits=limits, buckets=buckets)
        mixtures = {
            tuple(min(k, limit) for k, limit in zip(picked, limits, strict=True))
            for chosen in itertools.combinations(range(width + 1), min(buckets, width + 1))
            for picked in itertools.product(chosen, repeat=len(limits))
        }
        assert two.horizons in mixtures
        best = max(rate(survivals, each, affine, None) for each in mixtures)
        assert rate(survivals, two.horizons, affine, None) == pytest.approx(best, rel=1e-12)
        assert two.rate == pytest.approx(best, rel=1e-12)


def test_ties_are_settled_by_place() -> None:
    """Equal survivals: the earlier position, then the earlier request; equal rates: the smaller round."""
    survivals = np.array([[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]])
    costs = [3.0, 3.5, 4.0, 4.5, 9.0, 9.0, 9.0]
    assert ragged(survivals, costs).horizons == (0, 0, 0)  # 3/3 = 3.5/3.5 = 4/4 = 4.5/4.5
    costs[2] = 3.9
    assert ragged(survivals, costs).horizons == (1, 1, 0)


def test_contradictions_are_refused() -> None:
    with pytest.raises(ForerunError, match="need 3 verify costs"):
        ragged(np.ones((1, 2)), [1.0])
    with pytest.raises(ForerunError, match="at least one request"):
        ragged(np.ones((0, 2)), [1.0])
    with pytest.raises(ForerunError, match="above 0"):
        ragged(np.ones((1, 1)), [0.0, 1.0])
    with pytest.raises(ForerunError, match="need 1 limits"):
        uniform(np.ones((1, 1)), [1.0, 1.0], limits=[])
    with pytest.raises(ForerunError, match="F4"):
        JointAMTP(features=FeatureLevel.F4)


ROWS, WIDTH = 3, 4
SURFACE = CostSurface.from_profile(
    [PassTime(width=n, context_length=50, batch_size=ROWS, seconds=(1.0 + 0.02 * n,) * 3) for n in (3, 7, 11, 15)],
    [DraftTime(tokens=k, seconds=(0.05 * k,) * 3) for k in (1, 2, 3, 4)],
)


def contexts(limits: tuple[int, ...] = (4, 4, 4)) -> list[RoundContext]:
    return [RoundContext(limit=limit, context_length=50, generated=9, temperature=1.0) for limit in limits]


def told(choice: Choice, context: RoundContext, accept: float) -> RoundFeedback:
    horizon = choice.horizon
    return RoundFeedback(
        choice=choice,
        context=context,
        accepted=horizon if accept > 0.5 else 0,
        accept_probabilities=(accept,) * horizon,
        overlaps=(accept,) * horizon,
        seconds=1.3,
        draft_seconds=0.05 * horizon,
        verify_seconds=1.2,
        verify_width=ROWS + 3,
    )


def taught(joint: JointAMTP, seats: list[Seat], passes: int, accepts: tuple[float, ...]) -> None:
    rng = random.Random(passes)
    for _ in range(passes):
        now = contexts()
        choices = joint.propose(seats, now, uniforms=[rng.random() for _ in seats])
        for seat, choice, context, accept in zip(seats, choices, now, accepts, strict=True):
            seat.observe(told(choice, context, accept))


def test_requests_differ_by_their_own_history_and_share_what_is_learned() -> None:
    """One seat's drafts always stand, another's never: their horizons part. Catches one history for all."""
    joint = JointAMTP(costs=SURFACE, epsilon=0.05)
    seats = [joint.seat() for _ in range(ROWS)]
    taught(joint, seats, 60, (0.99, 0.5, 0.01))
    horizons = [choice.planned for choice in joint.propose(seats, contexts(), uniforms=[0.9] * ROWS)]
    assert horizons[0] == WIDTH > horizons[2], horizons
    assert len(joint.effective_sample_sizes) == WIDTH
    newcomer = joint.seat()
    assert newcomer.propose(contexts()[0], uniform=0.9).survival[0] != 0.8  # the prior's


def test_decisions_are_the_same_on_every_rank() -> None:
    """Two copies with equal inputs, one through JSON: equal choices, bit for bit."""
    joint = JointAMTP(costs=SURFACE, epsilon=0.05)
    taught(joint, [joint.seat() for _ in range(ROWS)], 30, (0.9, 0.6, 0.2))
    other = JointAMTP(costs=SURFACE, epsilon=0.05)
    other.load_state_dict(json.loads(json.dumps(joint.state_dict(), allow_nan=False)))
    for uniforms in ([0.3, 0.1, 0.9], [0.01, 0.9, 0.5], [0.149, 0.0, 0.0]):
        mine, theirs = (
            one.propose([one.seat() for _ in range(ROWS)], contexts(), uniforms=uniforms) for one in (joint, other)
        )
        assert mine == theirs
    with pytest.raises(ForerunError, match="feature_names"):
        JointAMTP(features=FeatureLevel.F1).load_state_dict(joint.state_dict())


def test_one_request_explores_at_a_time_with_its_propensity() -> None:
    """The coin by enumeration. Catches propensities of one coin each, or a first request that explores most."""
    joint = JointAMTP(costs=SURFACE, epsilon=0.1, prior_hazards=(0.9,))
    steps, explored = 1000, [0] * ROWS
    for step in range(steps):
        choices = joint.propose(
            [joint.seat() for _ in range(ROWS)], contexts(), uniforms=[(step + 0.5) / steps, 0.0, 0.0]
        )
        assert sum(choice.explored for choice in choices) <= 1
        for row, choice in enumerate(choices):
            explored[row] += choice.explored
            assert choice.horizon == (WIDTH if choice.explored else choice.planned)
            assert choice.propensities == pytest.approx((0.1,) * WIDTH)
    assert explored == [100, 100, 100]
    eager = JointAMTP(costs=SURFACE, epsilon=0.5, prior_hazards=(0.9,))
    choices = eager.propose([eager.seat() for _ in range(ROWS)], contexts(), uniforms=[0.99, 0.0, 0.0])
    assert [choice.explored for choice in choices] == [False, False, True]
    assert choices[0].propensities == (1 / 3,) * WIDTH


@pytest.mark.parametrize("shape", list(Shape))
@pytest.mark.parametrize("drafting", list(Drafting))
def test_limits_hold_in_every_shape(shape: Shape, drafting: Drafting) -> None:
    joint = JointAMTP(costs=SURFACE, shape=shape, drafting=drafting, epsilon=0.0, prior_hazards=(0.05,))
    seats = [joint.seat() for _ in range(ROWS)]
    for limits in ((4, 4, 4), (1, 4, 0), (0, 0, 0)):
        choices = joint.propose(seats, contexts(limits), uniforms=[0.5] * ROWS)
        assert all(choice.horizon <= limit for choice, limit in zip(choices, limits, strict=True))
        assert [len(choice.survival) for choice in choices] == list(limits)
        if shape is Shape.UNIFORM:
            tallest = max(choice.horizon for choice in choices)
            assert [choice.horizon for choice in choices] == [min(tallest, limit) for limit in limits]


def test_without_costs_nothing_is_trimmed_until_passes_are_measured() -> None:
    """Catches trimming on a regression that has seen one width only."""
    joint = JointAMTP(epsilon=0.0, prior_hazards=(0.9,), warmup_rounds=1000)
    seats = [joint.seat() for _ in range(ROWS)]
    totals = []
    for _ in range(30):
        now = contexts()
        choices = joint.propose(seats, now, uniforms=[0.5] * ROWS)
        width = ROWS + sum(choice.horizon for choice in choices)
        totals.append(width - ROWS)
        for seat, choice, context in zip(seats, choices, now, strict=True):
            feedback = told(choice, context, 0.1)
            seconds = 1.0 + 0.2 * width
            seat.observe(
                RoundFeedback(
                    choice=choice, context=context, accepted=0, accept_probabilities=feedback.accept_probabilities,
                    overlaps=feedback.overlaps, seconds=seconds + 0.1, draft_seconds=0.05 * choice.horizon,
                    verify_seconds=seconds, verify_width=width,
                )
            )  # fmt: skip
    assert totals[:3] == [12, 12, 12]
    assert set(totals[:12]) == {0, 12}
    assert totals[-1] == 0
