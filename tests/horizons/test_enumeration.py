"""The theory, by summing over every draft, every accept bit and the coin of small chains with tables for laws."""

import itertools
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import pytest

from forerun.horizons import AMTP, Choice, CostTable, RoundContext, RoundFeedback, gains, survivals
from forerun.horizons.evidence import evidence
from forerun.horizons.exploration import propensities
from forerun.horizons.hazards import LogisticHazards

# Sums of a few hundred products in float64.
TOLERANCE = 1e-12
Row = tuple[float, ...]


@dataclass(frozen=True)
class Chain:
    """Target and draft next-token laws given the drafted prefix."""

    vocab_size: int
    depth: int
    target: Callable[[tuple[int, ...]], Row]
    draft: Callable[[tuple[int, ...]], Row]

    def survivals(self) -> list[float]:
        """s_j as the sum over token strings of prod min(target, draft): no accept bit, no label."""
        return [
            math.fsum(
                math.prod(min(self.target(y[:i])[y[i]], self.draft(y[:i])[y[i]]) for i in range(j))
                for y in itertools.product(range(self.vocab_size), repeat=j)
            )
            for j in range(1, self.depth + 1)
        ]

    def hazards(self) -> list[float]:
        """h_j = 1 - s_j / s_{j-1}."""
        curve = [1.0, *self.survivals()]
        return [1.0 - after / before for before, after in itertools.pairwise(curve)]

    def rounds(self, choice: Choice) -> Iterator[tuple[float, RoundFeedback]]:
        """Every (probability, feedback) of a round with this choice."""
        context = RoundContext(limit=self.depth, context_length=1, generated=0, temperature=1.0)
        for y in itertools.product(range(self.vocab_size), repeat=choice.horizon):
            laws = [(self.target(y[:i]), self.draft(y[:i])) for i in range(len(y))]
            drawn = math.prod(draft[token] for token, (_, draft) in zip(y, laws, strict=True))
            if drawn == 0.0:
                continue
            accepts = tuple(min(1.0, target[t] / draft[t]) for t, (target, draft) in zip(y, laws, strict=True))
            overlaps = tuple(math.fsum(map(min, target, draft)) for target, draft in laws)
            for accepted in range(len(y) + 1):
                stopped = 1.0 - accepts[accepted] if accepted < len(y) else 1.0
                probability = drawn * math.prod(accepts[:accepted]) * stopped
                if probability > 0.0:
                    yield (
                        probability,
                        RoundFeedback(
                            choice=choice,
                            context=context,
                            accepted=accepted,
                            accept_probabilities=accepts,
                            overlaps=overlaps,
                            seconds=1.0,
                        ),
                    )

    def expect(self, choice: Choice, value: Callable[[RoundFeedback], list[float]]) -> list[float]:
        """E[value], entry by entry; shorter lists are filled with 0."""
        totals = [0.0] * self.depth
        for probability, feedback in self.rounds(choice):
            for index, number in enumerate(value(feedback)):
                totals[index] += probability * number
        return totals


def full(depth: int) -> Choice:
    return Choice(horizon=depth, planned=depth, explored=False, propensities=(1.0,) * depth)


def table_chain(seed: int, *, vocab_size: int = 3, depth: int = 3) -> Chain:
    """Random laws for every prefix, with some zeros: nothing is independent of the context."""
    rng = random.Random(seed)

    def row() -> Row:
        weights = [rng.random() ** 3 if rng.random() < 0.85 else 0.0 for _ in range(vocab_size)]
        weights[rng.randrange(vocab_size)] += 0.1
        return tuple(weight / sum(weights) for weight in weights)

    prefixes = [y for length in range(depth) for y in itertools.product(range(vocab_size), repeat=length)]
    targets = {prefix: row() for prefix in prefixes}
    drafts = {prefix: row() for prefix in prefixes}
    return Chain(vocab_size, depth, targets.__getitem__, drafts.__getitem__)


BINARY = Chain(
    2,
    2,
    lambda y: {(): (0.75, 0.25), (0,): (0.5, 0.5), (1,): (1.0, 0.0)}[y],
    lambda y: {(): (0.5, 0.5), (0,): (0.5, 0.5), (1,): (0.0, 1.0)}[y],
)
"""AMTP's binary example: position 2 is perfect after token 0 and totally wrong after token 1."""


def weights_of(feedback: RoundFeedback, soft: bool) -> list[float]:
    return evidence(feedback, soft=soft, importance_clip=math.inf).weights


def weighted_labels_of(feedback: RoundFeedback, soft: bool) -> list[float]:
    return [item.weight * item.label for item in evidence(feedback, soft=soft, importance_clip=math.inf).items()]


def squared_labels_of(feedback: RoundFeedback, soft: bool) -> list[float]:
    return [product * product for product in weighted_labels_of(feedback, soft)]


def gradient_of(feedback: RoundFeedback, model: LogisticHazards, soft: bool) -> list[float]:
    return model.gradient((), evidence(feedback, soft=soft, importance_clip=20.0))


def cross_entropy(label: float, hazard: float) -> float:
    parts = ((label, hazard), (1.0 - label, 1.0 - hazard))
    return -math.fsum(share * math.log(mass) for share, mass in parts if share > 0.0)


def squares_of(feedback: RoundFeedback, hazards: list[float], soft: bool) -> list[float]:
    items = evidence(feedback, soft=soft, importance_clip=20.0).items()
    return [item.weight * (h - item.label) ** 2 for item, h in zip(items, hazards, strict=False)]


def log_losses_of(feedback: RoundFeedback, hazards: list[float], soft: bool) -> list[float]:
    items = evidence(feedback, soft=soft, importance_clip=20.0).items()
    return [item.weight * cross_entropy(item.label, h) for item, h in zip(items, hazards, strict=False)]


@pytest.mark.parametrize("soft", [False, True])
def test_binary_example(soft: bool) -> None:
    """C36: hazard 1/3, G(2) = 2.25; the unweighted mean 1/2 gives 2.125. Catches labels without survival weight."""
    weights = BINARY.expect(full(2), partial(weights_of, soft=soft))
    rejected = BINARY.expect(full(2), partial(weighted_labels_of, soft=soft))
    hazards = [wy / w for wy, w in zip(rejected, weights, strict=True)]
    assert hazards == pytest.approx([0.25, 1.0 / 3.0], abs=TOLERANCE)
    assert gains(survivals(hazards))[2] == pytest.approx(2.25, abs=TOLERANCE)
    assert gains(survivals([0.25, 0.5]))[2] == pytest.approx(2.125, abs=TOLERANCE)
    # and the learner rests exactly there: its expected gradient is 0 at (1/4, 1/3) and not at (1/4, 1/2)
    for second, at_rest in ((1.0 / 3.0, True), (0.5, False)):
        model = LogisticHazards(num_features=0, prior_hazards=(0.25, second), learning_rate=0.1)
        gradient = BINARY.expect(full(2), partial(gradient_of, model=model, soft=soft))
        assert gradient[0] == pytest.approx(0.0, abs=TOLERANCE)
        assert (abs(gradient[1]) < TOLERANCE) is at_rest


@pytest.mark.parametrize("seed", range(8))
def test_soft_and_hard_labels_agree_in_expectation(seed: int) -> None:
    """Both give E[w] = s_{j-1} and E[w y] = s_{j-1} h_j, soft ones with no more variance of w y."""
    chain = table_chain(seed)
    before = [1.0, *chain.survivals()][: chain.depth]
    products = [s * h for s, h in zip(before, chain.hazards(), strict=True)]
    spread = {}
    for soft in (False, True):
        weights = chain.expect(full(chain.depth), partial(weights_of, soft=soft))
        rejected = chain.expect(full(chain.depth), partial(weighted_labels_of, soft=soft))
        assert weights == pytest.approx(before, abs=TOLERANCE)
        assert rejected == pytest.approx(products, abs=TOLERANCE)
        spread[soft] = chain.expect(full(chain.depth), partial(squared_labels_of, soft=soft))
    assert all(a <= b + TOLERANCE for a, b in zip(spread[True], spread[False], strict=True))
    assert sum(spread[True]) < sum(spread[False]) - 0.01


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_calibration_identity(seed: int, soft: bool) -> None:
    """AMTP's Lemma 1 for the square loss, and its log-loss counterpart with KL in place of the square."""
    chain = table_chain(seed)
    true = chain.hazards()
    rng = random.Random(100 + seed)
    guess = [rng.uniform(0.05, 0.95) for _ in true]
    before = [1.0, *chain.survivals()][: chain.depth]

    pairs = list(zip(true, guess, strict=True))
    distances = {
        squares_of: [(h - g) ** 2 for h, g in pairs],
        log_losses_of: [cross_entropy(h, g) - cross_entropy(h, h) for h, g in pairs],
    }
    for loss, distance in distances.items():
        at_guess = sum(chain.expect(full(chain.depth), partial(loss, hazards=guess, soft=soft)))
        at_truth = sum(chain.expect(full(chain.depth), partial(loss, hazards=true, soft=soft)))
        expected = math.fsum(s * d for s, d in zip(before, distance, strict=True))
        assert at_guess - at_truth == pytest.approx(expected, abs=TOLERANCE)


def test_exact_marginals_do_not_make_an_exact_block() -> None:
    """Perfectly correlated fair bits drafted by independent fair heads: s_2 = 1/2, though both marginals are exact."""
    copied = Chain(2, 2, lambda y: ((1.0, 0.0) if y == (0,) else (0.0, 1.0)) if y else (0.5, 0.5), lambda y: (0.5, 0.5))
    weights = copied.expect(full(2), partial(weights_of, soft=True))
    rejected = copied.expect(full(2), partial(weighted_labels_of, soft=True))
    hazards = [wy / w for wy, w in zip(rejected, weights, strict=True)]
    assert survivals(hazards) == pytest.approx([1.0, 0.5], abs=TOLERANCE)


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_inverse_weights_are_unbiased(seed: int, soft: bool) -> None:
    """The policy's own coin, both sides: the expected gradient is that of full feedback at every position.

    Catches the weight 1 / epsilon missing, applied in rounds that did not explore, or a coin that is not `uniform`.
    """
    chain = table_chain(seed)
    epsilon = 0.1
    policy = AMTP(costs=CostTable.from_profile([(0, 1.0), (1, 1.2), (3, 30.0)]), epsilon=epsilon)
    context = RoundContext(limit=chain.depth, context_length=1, generated=0, temperature=1.0)
    model = LogisticHazards(num_features=0, prior_hazards=(0.3, 0.6, 0.2), learning_rate=0.1)

    def expected_gradient(choice: Choice) -> list[float]:
        return chain.expect(choice, partial(gradient_of, model=model, soft=soft))

    heads, tails = policy.propose(context, uniform=0.0), policy.propose(context, uniform=0.5)
    assert (heads.horizon, tails.horizon, heads.planned, tails.planned) == (3, 1, 1, 1)
    mixed = [
        epsilon * a + (1.0 - epsilon) * b
        for a, b in zip(expected_gradient(heads), expected_gradient(tails), strict=True)
    ]
    whole = expected_gradient(full(chain.depth))
    assert mixed == pytest.approx(whole, abs=TOLERANCE)
    # the contrast: with weight 1 everywhere, positions 2 and 3 teach epsilon times too little
    flat = Choice(horizon=3, planned=3, explored=True, propensities=(1.0,) * 3)
    naive = [
        epsilon * a + (1.0 - epsilon) * b
        for a, b in zip(expected_gradient(flat), expected_gradient(tails), strict=True)
    ]
    assert naive[1] == pytest.approx(epsilon * whole[1], abs=TOLERANCE)
    assert abs(naive[1] - whole[1]) > 0.01


def test_naive_pooling_is_biased() -> None:
    """Two equally likely contexts that the model cannot tell apart, and a policy that can: 2 drafts in the easy one.

    The hazard at position 2 pooled without inverse weights is that of the easy context almost alone.
    """
    epsilon = 0.1
    easy, hard = 0.05, 0.6

    def point(hazard: float) -> Chain:
        return Chain(2, 2, lambda y: (1.0 - hazard, hazard), lambda y: (1.0, 0.0))

    totals = {"ipw": [0.0, 0.0], "naive": [0.0, 0.0]}
    for hazard, planned in ((easy, 2), (hard, 1)):
        for explored, coin in ((True, epsilon), (False, 1.0 - epsilon)):
            choice = Choice(
                horizon=2 if explored else planned,
                planned=planned,
                explored=explored,
                propensities=propensities(planned, 2, epsilon),
            )
            for probability, feedback in point(hazard).rounds(choice):
                for item in evidence(feedback, soft=True, importance_clip=20.0).items()[1:]:
                    for kind, importance in (("ipw", item.importance), ("naive", 1.0)):
                        totals[kind][0] += 0.5 * coin * probability * importance * item.weight * item.label
                        totals[kind][1] += 0.5 * coin * probability * importance * item.weight
    # by definition: P(rejected at 2) / P(reached 2) over the mixture of contexts
    true = ((1.0 - easy) * easy + (1.0 - hard) * hard) / ((1.0 - easy) + (1.0 - hard))
    assert totals["ipw"][0] / totals["ipw"][1] == pytest.approx(true, abs=TOLERANCE)
    assert totals["naive"][0] / totals["naive"][1] < true - 0.1
