"""Sampling parameters refuse what they cannot mean."""

import copy
import math
import pickle
from dataclasses import replace
from functools import partial
from typing import Any

import jaxtyping
import pytest
from transformers import RepetitionPenaltyLogitsProcessor

from forerun.distributions import GREEDY_TEMPERATURE, SamplingParams
from forerun.errors import ForerunError


@pytest.mark.parametrize(
    ("make", "name"),
    [
        *[(partial(SamplingParams, temperature=bad), "temperature") for bad in (-0.1, -1.0, math.inf, math.nan)],
        *[(partial(SamplingParams, top_k=bad), "top_k") for bad in (0, -1)],
        *[(partial(SamplingParams, top_p=bad), "top_p") for bad in (0.0, -0.5, 1.5, math.nan)],
        *[(partial(SamplingParams, min_p=bad), "min_p") for bad in (-0.1, 1.0, math.nan)],
        *[(partial(SamplingParams, typical_p=bad), "typical_p") for bad in (0.0, 1.5, math.nan)],
        *[
            (partial(SamplingParams, repetition_penalty=bad), "repetition_penalty")
            for bad in (0.0, -1.0, math.inf, math.nan)
        ],
        *[(partial(SamplingParams, presence_penalty=bad), "presence_penalty") for bad in (math.inf, math.nan)],
        *[(partial(SamplingParams, frequency_penalty=bad), "frequency_penalty") for bad in (-math.inf, math.nan)],
        (partial(SamplingParams, min_new_tokens=-1), "min_new_tokens"),
    ],
)
def test_out_of_range_is_refused_by_name(make: partial[SamplingParams], name: str) -> None:
    """Catches a sentinel such as -1 or 0 being taken for a setting; NaN must not slip through a comparison."""
    with pytest.raises(ForerunError, match=f"^{name} is {make.keywords[name]}; give "):
        make()


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"logit_bias": {-1: 1.0}}, "logit_bias names token -1; give token ids"),
        ({"logit_bias": {"a": 1.0}}, "logit_bias names token 'a'; give token ids"),
        ({"logit_bias": {3: math.nan}}, "logit_bias of token 3 is nan; give"),
        ({"logit_bias": {3: math.inf}}, "logit_bias of token 3 is inf; give"),
        ({"bad_words": [[]]}, r"bad_words holds \(\); give sequences"),
        ({"bad_words": [[1, -2]]}, r"bad_words holds \(1, -2\); give sequences"),
        ({"bad_words": ["no"]}, r"bad_words holds \('n', 'o'\); give sequences of one or more token ids"),
        ({"processors": [3]}, r"processors is \[3\]; give a list of LogitsProcessor objects"),
        ({"processors": RepetitionPenaltyLogitsProcessor(2.0)}, "processors is <.*; give a list"),
    ],
)
def test_collections_of_the_wrong_kind_are_refused(settings: dict[str, Any], complaint: str) -> None:
    """Catches text in place of token ids, and a penalty that would reward by plus infinity."""
    jaxtyping.config.update("jaxtyping_disable", True)  # the point is what callers without a type checker see
    try:
        with pytest.raises(ForerunError, match=f"^{complaint}"):
            SamplingParams(**settings)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def test_equal_settings_are_equal_and_keys_of_a_dictionary() -> None:
    """Catches a mutable or unhashable value inside: a caller's list that changes later must not change the law."""
    words, bias = [[1, 2], [3]], {9: 1.0, 4: -2.0}
    params = SamplingParams(bad_words=words, logit_bias=bias)
    words.append([5])
    bias[6] = 3.0
    again = SamplingParams(bad_words=((1, 2), (3,)), logit_bias={4: -2.0, 9: 1.0})
    assert params == again and hash(params) == hash(again) and params.bias_pairs == ((4, -2.0), (9, 1.0))
    assert replace(params, top_k=3) == SamplingParams(bad_words=[[1, 2], [3]], logit_bias={9: 1.0, 4: -2.0}, top_k=3)
    assert pickle.loads(pickle.dumps(params)) == params and copy.deepcopy(params) == params


@pytest.mark.parametrize(
    "settings",
    [
        {"repetition_penalty": 1.1},
        {"presence_penalty": 0.1},
        {"frequency_penalty": -0.1},
        {"bad_words": [[1]]},
        {"min_new_tokens": 1},
        {"processors": [RepetitionPenaltyLogitsProcessor(2.0)]},
    ],
)
def test_what_looks_at_more_than_the_row(settings: dict[str, Any]) -> None:
    """Catches a step that the fast path would leave out."""
    assert not SamplingParams(**settings).row_only
    cuts = SamplingParams(temperature=0.5, top_k=3, top_p=0.9, min_p=0.1, typical_p=0.8)
    assert cuts.row_only and replace(cuts, logit_bias={1: 1.0}).row_only
    assert replace(cuts, logit_bias={1: 1.0}, **settings).truncation == cuts


def test_one_constant_decides_greedy() -> None:
    """Draft and verification path must not use different thresholds."""
    assert SamplingParams(temperature=0.0).greedy
    assert SamplingParams(temperature=math.nextafter(GREEDY_TEMPERATURE, 0.0)).greedy
    assert not SamplingParams(temperature=GREEDY_TEMPERATURE).greedy
    assert not SamplingParams().greedy
