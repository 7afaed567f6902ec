"""Position weights."""

import math

import pytest

from forerun.errors import ForerunError
from forerun.losses import bound_weights, exp_weights, geometric_weights, uniform_weights


def test_bound() -> None:
    """Counts, for each position, the prefixes it is part of. Catches (K - h)/K: nothing for the last position."""
    for horizon in (1, 4, 7):
        prefixes = [sum(1 for k in range(1, horizon + 1) if h <= k) / horizon for h in range(1, horizon + 1)]
        assert bound_weights(horizon).tolist() == pytest.approx(prefixes, rel=1e-15)
        assert bound_weights(horizon).sum().item() == pytest.approx((horizon + 1) / 2)


def test_exp() -> None:
    assert exp_weights(3).tolist() == pytest.approx([1.0, math.exp(-1 / 4), math.exp(-2 / 4)], rel=1e-15)
    assert exp_weights(3, gamma=7.0)[2].item() == pytest.approx(math.exp(-2 / 7), rel=1e-15)


def test_uniform() -> None:
    assert uniform_weights(3).tolist() == [1.0, 1.0, 1.0]


def test_wrong_use() -> None:
    for weights in (bound_weights, exp_weights, geometric_weights, uniform_weights):
        with pytest.raises(ForerunError, match="horizon is 0"):
            weights(0)
    for gamma in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ForerunError, match="gamma is"):
            exp_weights(3, gamma=gamma)


def test_geometric() -> None:
    """EAGLE-3's 0.8^i with i from 0. Catches 0.8^(i+1), which scales the whole loss."""
    assert geometric_weights(7).tolist() == pytest.approx([0.8**i for i in range(7)], rel=1e-15)
    fast_mtp = geometric_weights(3, rate=0.6)
    assert (fast_mtp / fast_mtp.sum()).tolist() == pytest.approx([0.51, 0.31, 0.18], abs=0.005)
    for rate in (0.0, 1.1, math.nan):
        with pytest.raises(ForerunError, match="rate is"):
            geometric_weights(3, rate=rate)
