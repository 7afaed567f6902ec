"""Block verification against its definition in exact fractions, on drafts and targets that depend on the context."""

import math
import random
from collections.abc import Iterator
from fractions import Fraction
from itertools import product

import pytest
import torch

from forerun.distributions import DenseLaw, Law, PointLaw
from forerun.verification import BlockVerification, Rule, TokenLevel
from tests.exactness.enumerate import FINE, Tokens, outcomes

TOLERANCE = 1e-12
Rows = dict[Tokens, list[Fraction]]


class Chain:
    """Random laws in sixteenths after every prefix, some zeros among the target's; floats hold them exactly."""

    def __init__(self, seed: int, horizon: int, vocab_size: int = 2) -> None:
        self.vocab_size, self.horizon = vocab_size, horizon
        prefixes = [tokens for length in range(horizon + 1) for tokens in product(range(vocab_size), repeat=length)]

        def rows(least: int) -> Rows:
            numbers = random.Random(2 * seed + least)  # one stream each, so a longer horizon begins with the same rows
            found = {}
            for prefix in prefixes:
                cuts = sorted(numbers.randint(least, 16 - least) for _ in range(vocab_size - 1))
                found[prefix] = [Fraction(b - a, 16) for a, b in zip([0, *cuts], [*cuts, 16], strict=True)]
            return found

        self.target, self.draft = rows(0), rows(1)
        self.laws = {
            id(table): {
                prefix: DenseLaw(torch.tensor([[float(x) for x in row]]).double()) for prefix, row in table.items()
            }
            for table in (self.target, self.draft)
        }

    def drafts(self) -> Iterator[tuple[Tokens, Fraction]]:
        """Every draft with its probability."""
        for tokens in product(range(self.vocab_size), repeat=self.horizon):
            weight = math.prod((self.draft[tokens[:i]][x] for i, x in enumerate(tokens)), start=Fraction(1))
            if weight:
                yield tokens, weight

    def prefix_weights(self, tokens: Tokens) -> list[Fraction]:
        """w_0 ... w_horizon of the paper."""
        weights = [Fraction(1)]
        for i, x in enumerate(tokens):
            weights.append(min(Fraction(1), weights[-1] * self.target[tokens[:i]][x] / self.draft[tokens[:i]][x]))
        return weights

    def accepted_law(self, tokens: Tokens) -> list[Fraction]:
        """Probability of each accepted count given the draft: the largest index that passes."""
        weights, passing = self.prefix_weights(tokens), [Fraction(1)]
        for i in range(1, self.horizon):
            pairs = zip(self.target[tokens[:i]], self.draft[tokens[:i]], strict=True)
            mass = sum((max(Fraction(0), weights[i] * t - d) for t, d in pairs), start=Fraction(0))
            below = mass + 1 - weights[i]
            passing.append(mass / below if below else Fraction(1))
        passing.append(weights[-1])
        return [
            passing[i] * math.prod((1 - h for h in passing[i + 1 :]), start=Fraction(1))
            for i in range(self.horizon + 1)
        ]

    def found(self, rule: Rule, tokens: Tokens) -> list[float]:
        """The package's probability of each accepted count."""
        prefixes = [tokens[:i] for i in range(self.horizon + 1)]
        target: tuple[Law, ...] = tuple(self.laws[id(self.target)][prefix] for prefix in prefixes)
        claimed: tuple[Law, ...] = tuple(self.laws[id(self.draft)][prefix] for prefix in prefixes[:-1])
        law = [0.0] * (self.horizon + 1)
        for outcome, weight in outcomes(rule, target, claimed, tokens, FINE):
            law[outcome.accepted] += weight
        return law


@pytest.mark.parametrize(("seed", "horizon", "vocab_size"), [(0, 1, 3), (1, 2, 3), (2, 3, 2), (3, 4, 2)])
def test_accepted_counts_are_those_of_the_definition(seed: int, horizon: int, vocab_size: int) -> None:
    """Catches a threshold from the wrong row or weight, the last position tested like the others, and early ends."""
    chain = Chain(seed, horizon, vocab_size)
    block, token, oracle_token = Fraction(0), 0.0, Fraction(0)
    for tokens, weight in chain.drafts():
        expected = chain.accepted_law(tokens)
        assert sum(expected) == 1
        assert chain.found(BlockVerification(), tokens) == pytest.approx([float(x) for x in expected], abs=TOLERANCE)
        block += weight * sum(i * x for i, x in enumerate(expected))
        token += float(weight) * sum(i * x for i, x in enumerate(chain.found(TokenLevel(), tokens)))
        for i in range(1, horizon + 1):
            ratios = (
                min(Fraction(1), chain.target[tokens[:j]][x] / chain.draft[tokens[:j]][x])
                for j, x in enumerate(tokens[:i])
            )
            oracle_token += weight * math.prod(ratios, start=Fraction(1))
    assert token == pytest.approx(float(oracle_token), abs=TOLERANCE)
    # never below token-level; equal for one token, clearly above on these longer chains
    assert block == oracle_token if horizon == 1 else block > oracle_token + Fraction(1, 100)


@pytest.mark.parametrize("seed", range(20))
def test_never_fewer_accepted_tokens_than_token_level(seed: int) -> None:
    """The theorem in exact fractions, and the other way to compute it: expected accepted tokens are sum E[w_i]."""
    chain = Chain(100 + seed, horizon=3, vocab_size=2 + seed % 2)
    by_count, by_weight, token = Fraction(0), Fraction(0), Fraction(0)
    for tokens, weight in chain.drafts():
        by_count += weight * sum(i * x for i, x in enumerate(chain.accepted_law(tokens)))
        by_weight += weight * sum(chain.prefix_weights(tokens)[1:])
        stands = Fraction(1)
        for i, x in enumerate(tokens):
            stands *= min(Fraction(1), chain.target[tokens[:i]][x] / chain.draft[tokens[:i]][x])
            token += weight * stands
    assert by_count == by_weight >= token


@pytest.mark.parametrize("horizon", range(1, 5))
def test_a_prefix_stands_as_often_whatever_is_drafted_after_it(horizon: int) -> None:
    """P(accepted >= i | first i drafts) = w_i for every horizon: the survival curve that AMTP learns is one curve.

    Catches a last position, or a residual weight, that makes the horizon change what earlier tokens are worth.
    """
    chain = Chain(7, horizon)
    stands: dict[Tokens, Fraction] = {}
    found: dict[Tokens, float] = {}
    for tokens, weight in chain.drafts():
        accepted = chain.found(BlockVerification(), tokens)
        for i in range(1, horizon + 1):
            prefix = tokens[:i]
            share = weight / math.prod((chain.draft[prefix[:j]][x] for j, x in enumerate(prefix)), start=Fraction(1))
            stands[prefix] = chain.prefix_weights(tokens)[i]
            found[prefix] = found.get(prefix, 0.0) + float(share) * sum(accepted[i:])
    assert found == pytest.approx({prefix: float(weight) for prefix, weight in stands.items()}, abs=TOLERANCE)


@pytest.mark.parametrize("tokens", list(product(range(3), repeat=2)))
def test_one_hot_drafts_are_token_level(tokens: Tokens) -> None:
    """No gain and no loss without a draft law to speak of."""
    target: tuple[Law, ...] = tuple(
        DenseLaw(torch.tensor([row]).double()) for row in ([0.5, 0.25, 0.25], [0.125, 0.875, 0.0], [1.0, 0.0, 0.0])
    )
    claimed: tuple[Law, ...] = tuple(PointLaw(torch.tensor([token]), 3) for token in tokens)

    def law(rule: Rule) -> dict[tuple[int, tuple[float, ...]], float]:
        found: dict[tuple[int, tuple[float, ...]], float] = {}
        for outcome, weight in outcomes(rule, target, claimed, tokens, FINE):
            key = outcome.accepted, tuple(round(x, 12) for x in outcome.emission.dense()[0].tolist())
            found[key] = found.get(key, 0.0) + weight
        return found

    assert law(BlockVerification()) == pytest.approx(law(TokenLevel()), abs=TOLERANCE)
