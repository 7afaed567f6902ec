"""Sampling parameters refuse what they cannot mean."""

import math
from functools import partial

import pytest

from forerun.distributions import GREEDY_TEMPERATURE, SamplingParams
from forerun.errors import ForerunError


@pytest.mark.parametrize(
    ("make", "name"),
    [
        *[(partial(SamplingParams, temperature=bad), "temperature") for bad in (-0.1, -1.0, math.inf, math.nan)],
        *[(partial(SamplingParams, top_k=bad), "top_k") for bad in (0, -1)],
        *[(partial(SamplingParams, top_p=bad), "top_p") for bad in (0.0, -0.5, 1.5, math.nan)],
        *[(partial(SamplingParams, min_p=bad), "min_p") for bad in (-0.1, 1.0, math.nan)],
    ],
)
def test_out_of_range_is_refused_by_name(make: partial[SamplingParams], name: str) -> None:
    """Catches a sentinel such as -1 or 0 being taken for a setting; NaN must not slip through a comparison."""
    with pytest.raises(ForerunError, match=f"^{name} is {make.keywords[name]}; give "):
        make()


def test_one_constant_decides_greedy() -> None:
    """Draft and verification path must not use different thresholds."""
    assert SamplingParams(temperature=0.0).greedy
    assert SamplingParams(temperature=math.nextafter(GREEDY_TEMPERATURE, 0.0)).greedy
    assert not SamplingParams(temperature=GREEDY_TEMPERATURE).greedy
    assert not SamplingParams().greedy
