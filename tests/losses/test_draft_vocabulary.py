"""Labels and rows of a pruned draft vocabulary."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from forerun.errors import ForerunError
from forerun.losses import OUTSIDE, draft_labels, draft_rows, outside_mass


@given(
    st.lists(st.integers(0, 30), unique=True, min_size=1, max_size=12),
    st.lists(st.integers(0, 40), min_size=1, max_size=20),
)
def test_labels_are_positions_in_the_vocabulary(draft_token_ids: list[int], token_ids: list[int]) -> None:
    """Catches a lookup that assumes sorted ids, and ids beyond the last draft token."""
    labels = draft_labels(torch.tensor(token_ids), torch.tensor(draft_token_ids))
    expected = [draft_token_ids.index(token) if token in draft_token_ids else OUTSIDE for token in token_ids]
    assert labels.tolist() == expected


def test_labels_keep_their_shape() -> None:
    labels = draft_labels(torch.tensor([[5, 6], [7, 9], [1, 5]]).T, torch.tensor([9, 5, 7]))
    assert labels.tolist() == [[1, 2, OUTSIDE], [OUTSIDE, 0, 1]]


def test_empty_vocabulary() -> None:
    with pytest.raises(ForerunError, match="empty"):
        draft_labels(torch.tensor([1]), torch.tensor([], dtype=torch.int64))


def test_rows_are_gathered_and_not_renormalised() -> None:
    rows = draft_rows(torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]).log(), torch.tensor([2, 0]))
    torch.testing.assert_close(rows.exp(), torch.tensor([[0.2, 0.5], [0.8, 0.1]]))
    torch.testing.assert_close(outside_mass(rows), torch.tensor([0.3, 0.1]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("vocab", [2, 1_000, 262_144])
def test_complete_rows_have_nothing_outside(vocab: int, dtype: torch.dtype) -> None:
    """Catches rounding of a complete row taken for mass outside."""
    logits = torch.randn(4, vocab, generator=torch.Generator().manual_seed(vocab), dtype=dtype) * torch.tensor(
        [[0.01], [1.0], [5.0], [20.0]], dtype=dtype
    )
    assert outside_mass(logits.log_softmax(-1)).tolist() == [0.0] * 4


def test_small_mass_outside_is_not_rounded_away() -> None:
    assert outside_mass(torch.tensor([math.log1p(-1e-5)])).item() == pytest.approx(1e-5, rel=0.01)
    assert outside_mass(torch.tensor([-math.inf, -math.inf])).item() == 1.0
