"""Ratios of speeds over the same prompts."""

import numpy as np
import pytest

from forerun.evaluation import SpeedPair, speed_ratio


def pair(tokens: int, seconds: float, baseline_tokens: int, baseline_seconds: float) -> SpeedPair:
    return SpeedPair(tokens=tokens, seconds=seconds, baseline_tokens=baseline_tokens, baseline_seconds=baseline_seconds)


def test_the_ratio_is_of_sums() -> None:
    """C59. Catches a mean of ratios (1.75) where 40 tokens in 5 s stand against 40 in 8.5 s, and ratios upside down."""
    ratio = speed_ratio([pair(10, 2.0, 10, 4.0), pair(30, 3.0, 30, 4.5), pair(0, 1.0, 5, 1.0)], seed=0)
    assert ratio is not None
    assert ratio.estimate == pytest.approx((40 / 5.0) / (40 / 8.5))
    assert ratio.num_pairs == 2  # an answer without a round has no speed
    assert (ratio.low, ratio.high) == pytest.approx((1.5, 2.0))  # only these two prompts to draw from


def test_tokens_may_differ_between_the_arms() -> None:
    """Catches seconds that are compared where tokens per second should be."""
    ratio = speed_ratio([pair(20, 2.0, 10, 2.0)] * 2, seed=0)
    assert ratio is not None and ratio.estimate == ratio.low == ratio.high == pytest.approx(2.0)


@pytest.mark.parametrize("pairs", [[], [pair(10, 1.0, 10, 1.0)], [pair(10, 1.0, 10, 1.0), pair(10, 1.0, 0, 0.0)]])
def test_fewer_than_two_pairs_have_no_interval(pairs: list[SpeedPair]) -> None:
    assert speed_ratio(pairs, seed=0) is None


def test_the_interval_is_the_seeds_own_and_contains_the_estimate() -> None:
    generator = np.random.default_rng(0)
    pairs = [pair(50, float(generator.uniform(1, 2)), 50, float(generator.uniform(1, 2))) for _ in range(12)]
    first, again, other = (speed_ratio(pairs, seed=seed) for seed in (1, 1, 2))
    assert first is not None and other is not None
    assert first == again and first != other
    assert first.low < first.estimate < first.high
    assert other.low == pytest.approx(first.low, rel=0.02)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    """Catches resampled tokens instead of prompts, unpaired resampling (far too wide), and other quantiles.

    200 simulated runs of 24 prompts, seeds 0..199; prompts differ by a factor of three in difficulty, which both arms
    share; the true ratio is 1.25. A percentile interval of 24 pairs covers a little less than its nominal 95 %: at a
    true 94 %, the band from 88 % to 99 % is left with probability 1e-3. The width is that of the normal approximation,
    2 * 1.96 * 1.25 * sqrt(2) * 0.1 * sqrt(E d^2 / 24) / E d, within 7 % (a 90 % interval is 16 % narrower).
    """
    covered, widths = 0, []
    for seed in range(200):
        generator = np.random.default_rng(seed)
        difficulty = generator.uniform(1.0, 3.0, size=24)
        noise = generator.lognormal(mean=-(0.1**2) / 2, sigma=0.1, size=(2, 24))
        pairs = [
            pair(64, float(hard * own), 64, float(1.25 * hard * base))
            for hard, own, base in zip(difficulty, noise[0], noise[1], strict=True)
        ]
        ratio = speed_ratio(pairs, seed=seed)
        assert ratio is not None
        covered += ratio.low <= 1.25 <= ratio.high
        widths.append(ratio.high - ratio.low)
    assert 0.88 * 200 <= covered <= 0.99 * 200, covered
    expected = 2 * 1.96 * 1.25 * 2**0.5 * 0.1 * (13 / 3 / 24) ** 0.5 / 2
    assert float(np.mean(widths)) == pytest.approx(expected, rel=0.07)
