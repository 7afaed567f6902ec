"""Logits become a law as transformers' own warpers would have it, and ties, dtypes and bad rows behave as promised."""

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from forerun.distributions import DenseLaw, PointLaw, SamplingParams, law_from_logits
from forerun.errors import ForerunError
from tests.exactness.tables import plain_row

FLOAT32_ROUNDING = 1e-5
"""Warpers round softmax and running sums in float32."""


def warped(logits: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """Probabilities after transformers' warpers in transformers' order."""
    warpers = LogitsProcessorList()
    if params.temperature != 1.0:
        warpers.append(TemperatureLogitsWarper(params.temperature))
    if params.top_k is not None:
        warpers.append(TopKLogitsWarper(params.top_k))
    if params.top_p < 1.0:
        warpers.append(TopPLogitsWarper(params.top_p))
    if params.min_p > 0.0:
        warpers.append(MinPLogitsWarper(params.min_p))
    if params.typical_p < 1.0:
        warpers.append(TypicalLogitsWarper(params.typical_p))
    no_tokens = torch.LongTensor(len(logits), 0)
    return torch.softmax(warpers(no_tokens, logits.clone()), -1)


PARAMS = [
    SamplingParams(),
    SamplingParams(temperature=0.3),
    SamplingParams(temperature=3.0),
    SamplingParams(top_k=1),
    SamplingParams(top_k=7),
    SamplingParams(top_k=10_000),
    SamplingParams(top_p=0.05),
    SamplingParams(top_p=0.5),
    SamplingParams(top_p=0.95),
    SamplingParams(top_p=0.999),
    SamplingParams(min_p=0.02),
    SamplingParams(min_p=0.9),
    SamplingParams(temperature=0.6, top_k=20, top_p=0.95),
    SamplingParams(temperature=1.7, top_k=50, top_p=0.8, min_p=0.05),
    SamplingParams(typical_p=0.1),
    SamplingParams(typical_p=0.9),
    SamplingParams(temperature=1.3, top_k=40, top_p=0.9, min_p=0.02, typical_p=0.7),
]


@pytest.mark.parametrize("params", PARAMS, ids=str)
@pytest.mark.parametrize(("vocab_size", "spread"), [(3, 1.0), (50, 2.0), (3000, 0.3), (3000, 4.0)])
def test_same_law_as_transformers(params: SamplingParams, vocab_size: int, spread: float) -> None:
    """Flat rows of 3000 tokens have a nucleus beyond the first look at 1024 tokens."""
    generator = torch.Generator().manual_seed(7)
    logits = torch.randn(6, vocab_size, dtype=torch.float64, generator=generator) * spread
    ours, theirs = law_from_logits(logits, params).dense(), warped(logits, params)
    assert torch.equal(ours > 0.0, theirs > 0.0)
    assert torch.allclose(ours, theirs, rtol=1e-11, atol=0.0)

    # In float32 a running sum of thousands may place the edge of a nucleus one tiny token off.
    ours, theirs = law_from_logits(logits.float(), params).dense(), warped(logits.float(), params)
    assert float((ours - theirs).abs().sum(-1).max()) <= FLOAT32_ROUNDING


@pytest.mark.parametrize(
    "params",
    [SamplingParams(top_k=3), SamplingParams(top_k=8), SamplingParams(min_p=0.2), SamplingParams(top_k=5, min_p=0.1)],
    ids=str,
)
def test_ties_at_top_k_and_min_p_as_transformers(params: SamplingParams) -> None:
    """Half-integer logits tie all the time; bfloat16 logits do too."""
    generator = torch.Generator().manual_seed(8)
    logits = (torch.randn(200, 12, generator=generator) * 2.0).round() / 2.0
    ours, theirs = law_from_logits(logits, params).dense(), warped(logits, params)
    assert torch.equal(ours > 0.0, theirs > 0.0)
    assert torch.allclose(ours, theirs.double(), rtol=FLOAT32_ROUNDING)


@pytest.mark.parametrize("top_p", [0.3, 0.6, 0.9])
def test_ties_at_the_edge_of_the_nucleus_all_stay(top_p: float) -> None:
    """The one documented departure: transformers keeps some of the tied tokens, by sort order."""
    generator = torch.Generator().manual_seed(9)
    logits = (torch.randn(200, 12, generator=generator) * 2.0).round() / 2.0
    kept = law_from_logits(logits, SamplingParams(top_p=top_p)).dense() > 0.0
    theirs = warped(logits, SamplingParams(top_p=top_p)) > 0.0
    assert bool((kept | ~theirs).all())  # theirs is part of ours
    edges = logits.masked_fill(~theirs, math.inf).amin(-1, keepdim=True)
    assert torch.equal(kept, logits >= edges)
    assert bool((kept != theirs).any())  # the rows do hold such ties


logit_rows = st.lists(
    st.one_of(st.floats(-30.0, 30.0), st.sampled_from([0.0, 1.0, 2.0]), st.just(-math.inf)), min_size=1, max_size=8
).filter(lambda row: max(row) > -math.inf)
# The parameters are made in the tests: their type check draws from ``random``, which strategies may not.
any_cuts = st.fixed_dictionaries(
    {
        "temperature": st.floats(0.05, 5.0),
        "top_k": st.one_of(st.none(), st.integers(1, 10)),
        "top_p": st.floats(0.01, 1.0),
        "min_p": st.floats(0.0, 0.99),
        "typical_p": st.one_of(st.just(1.0), st.floats(0.01, 1.0)),
    }
)


@given(row=logit_rows, cuts=any_cuts)
def test_law_has_a_positive_peak_and_the_right_order(row: list[float], cuts: dict[str, Any]) -> None:
    """Whatever the cuts: the peak stays, forbidden tokens stay out, and a larger logit never has less mass."""
    law = law_from_logits(torch.tensor([row], dtype=torch.float64), SamplingParams(**cuts | {"typical_p": 1.0}))
    (probs,) = law.dense().tolist()
    assert math.fsum(probs) == pytest.approx(1.0, abs=1e-12)
    assert probs[row.index(max(row))] == max(probs) > 0.0
    ranked = sorted(zip(row, probs, strict=True))
    assert all(low <= high for (_, low), (_, high) in pairwise(ranked))
    assert all(prob == 0.0 for logit, prob in zip(row, probs, strict=True) if logit == -math.inf)


@given(row=logit_rows, seed=st.integers(0, 999), cuts=any_cuts)
def test_law_does_not_depend_on_token_numbers(row: list[float], seed: int, cuts: dict[str, Any]) -> None:
    """Cuts by rank instead of by value would keep other tokens after renumbering."""
    params = SamplingParams(**cuts)
    permutation = torch.randperm(len(row), generator=torch.Generator().manual_seed(seed))
    logits = torch.tensor([row], dtype=torch.float64)
    direct = law_from_logits(logits, params).dense()[:, permutation]
    renumbered = law_from_logits(logits[:, permutation], params).dense()
    assert torch.equal(direct > 0.0, renumbered > 0.0)
    assert torch.allclose(direct, renumbered, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("params", PARAMS, ids=str)
def test_same_law_as_the_definition_in_float64(params: SamplingParams) -> None:
    """Catches a float32 detour: float64 logits of table models must stay float64."""
    generator = torch.Generator().manual_seed(10)
    logits = torch.randn(20, 9, dtype=torch.float64, generator=generator) * 2.0
    law = law_from_logits(logits, params)
    for row, probs in zip(logits.tolist(), law.dense().tolist(), strict=True):
        assert probs == pytest.approx(plain_row(row, params), abs=1e-14)


def test_edges_that_are_met_exactly() -> None:
    """Mass 1/2 reaches top_p 1/2, and half the peak's probability is enough for min_p 1/2; as in transformers."""
    logits = torch.tensor([[0.5, 0.25, 0.25]], dtype=torch.float64).log()
    for params, probs in (
        (SamplingParams(top_p=0.5), [1.0, 0.0, 0.0]),
        (SamplingParams(min_p=0.5), [0.5, 0.25, 0.25]),
    ):
        assert law_from_logits(logits, params).dense()[0].tolist() == pytest.approx(probs, abs=1e-15)
        assert warped(logits, params)[0].tolist() == pytest.approx(probs, abs=1e-15)


def test_half_precision_is_raised_before_it_is_used() -> None:
    """C09 and C11: half-precision softmax loses small tokens, half-precision division overflows."""
    logits = torch.tensor([[0.0, -18.0, 4.0]])
    params = SamplingParams(temperature=0.9)
    for dtype in (torch.float16, torch.bfloat16):
        exact = law_from_logits(logits.to(dtype).float(), params)
        assert torch.equal(law_from_logits(logits.to(dtype), params).dense(), exact.dense())


def test_greedy_takes_the_lowest_of_equals() -> None:
    """C12; and truncation has no say in it."""
    logits = torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0], [-math.inf, 0.0, -1.0]])
    law = law_from_logits(logits, SamplingParams(temperature=0.0, top_k=2, top_p=0.1, min_p=0.9))
    assert isinstance(law, PointLaw)
    assert law.token_ids.tolist() == [1, 0, 1]
    assert isinstance(law_from_logits(logits, SamplingParams(temperature=1e-5)), DenseLaw)


@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(temperature=0.0), SamplingParams(top_p=0.5)])
@pytest.mark.parametrize("bad", [[math.nan, 0.0], [math.inf, 0.0], [-math.inf, -math.inf], [math.nan, -math.inf]])
def test_unusable_row_is_named(bad: list[float], params: SamplingParams) -> None:
    """NaN must not become token 0 (argmax) or a uniform law (softmax of nothing but minus infinity)."""
    with pytest.raises(ForerunError, match="logits of row 2 have largest entry"):
        law_from_logits(torch.tensor([[0.0, 1.0], [-math.inf, 0.0], bad]), params)


def test_overflow_after_temperature_is_named() -> None:
    """A finite logit can leave float32 when divided by a small temperature."""
    with pytest.raises(ForerunError, match="row 0"):
        law_from_logits(torch.tensor([[1e35, 0.0]]), SamplingParams(temperature=1e-4))


def test_logits_are_left_alone() -> None:
    """In-place masking would change what the next consumer of the logits sees."""
    logits = torch.tensor([[0.0, 1.0, 2.0]])
    law_from_logits(logits, SamplingParams(top_k=1, top_p=0.5, min_p=0.5))
    assert logits.tolist() == [[0.0, 1.0, 2.0]]
