"""Log-probabilities that are shown beside an answer."""

import math

import pytest
import torch

from forerun.distributions import TokenLogprob, token_logprobs
from forerun.errors import ForerunError


def test_hand_computed_values() -> None:
    """Catches 0.0 for everything, and values after temperature or of the wrong row."""
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05], [0.1, 0.2, 0.3, 0.4]], dtype=torch.float64).log() + 7.0
    first, second = token_logprobs(logits, [2, 3], top=2)
    assert (first.token_id, second.token_id) == (2, 3)
    assert first.logprob == pytest.approx(math.log(0.15), abs=1e-14)
    assert second.logprob == pytest.approx(math.log(0.4), abs=1e-14)
    assert [token_id for token_id, _ in first.top] == [0, 1]
    assert [value for _, value in first.top] == pytest.approx([math.log(0.5), math.log(0.3)], abs=1e-14)
    assert second.top[0] == (3, second.logprob)


def test_against_the_definition() -> None:
    """Random rows against plain Python: log of the exponentials' share, ranked by value and then by id."""
    logits = torch.randn(5, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 3.0
    found = token_logprobs(logits, [0, 39, 7, 7, 20], top=6)
    for row, one in zip(logits.tolist(), found, strict=True):
        total = math.log(math.fsum(math.exp(value) for value in row))
        ranked = sorted(range(40), key=lambda token_id: (-row[token_id], token_id))[:6]
        assert one.logprob == pytest.approx(row[one.token_id] - total, abs=1e-12)
        assert [token_id for token_id, _ in one.top] == ranked
        assert [value for _, value in one.top] == pytest.approx([row[token_id] - total for token_id in ranked])


@pytest.mark.parametrize("top", [1, 2, 3, 5])
def test_equals_are_listed_by_id(top: int) -> None:
    """Catches a list that differs between a block of rows and a single row, where topk leaves the choice open."""
    logits = torch.tensor([[1.0, 2.0, 2.0, 1.0, 2.0]])
    (found,) = token_logprobs(logits, [4], top=top)
    assert [token_id for token_id, _ in found.top] == [1, 2, 4, 0, 3][:top]


def test_forbidden_tokens_and_half_precision() -> None:
    """A token at minus infinity keeps it; half precision is raised before the softmax."""
    logits = torch.tensor([[0.0, -math.inf, -18.0]])
    (found,) = token_logprobs(logits.bfloat16(), [1], top=0)
    assert found == TokenLogprob(1, -math.inf, ())
    assert token_logprobs(logits.bfloat16(), [2])[0].logprob == pytest.approx(-18.0, abs=1e-7)


def test_nothing_and_too_many() -> None:
    assert token_logprobs(torch.zeros(0, 3), [], top=2) == []
    for top in (-1, 4):
        with pytest.raises(
            ForerunError, match=f"^{top} top log-probabilities were asked for; give a number from 0 to 3"
        ):
            token_logprobs(torch.zeros(1, 3), [0], top=top)
