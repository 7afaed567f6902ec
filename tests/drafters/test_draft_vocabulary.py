"""Pruned vocabularies: the map (C54), and tokens outside it that come out all the same."""

from collections import Counter
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from forerun.distributions import SamplingParams
from forerun.drafters import DraftVocabulary
from forerun.engine import generate_batch
from forerun.errors import ForerunError
from tests.exactness.statistics import chi_square_p_value
from tests.exactness.tables import plain_row
from tests.support.networks import tiny_drafter
from tests.support.targets import markov_target

KEPT = torch.tensor([0, 3, 5, 9])


def test_offsets_and_round_trip() -> None:
    """C54. Catches offsets that are ids, and a map that is off by one behind a gap."""
    vocabulary = DraftVocabulary(KEPT, 10)
    assert vocabulary.offsets().tolist() == [0, 2, 3, 6]
    assert (torch.arange(4) + vocabulary.offsets()).tolist() == KEPT.tolist()
    assert vocabulary.to_draft(KEPT).tolist() == [0, 1, 2, 3]
    inside = vocabulary.to_draft(torch.arange(10)) < len(vocabulary)
    assert inside.nonzero().flatten().tolist() == KEPT.tolist()
    assert vocabulary.to_draft(torch.tensor([[4, 9], [1, 0]])).tolist() == [[4, 3], [4, 0]]


def test_rare_data_still_fill_the_vocabulary() -> None:
    """C54. Catches a vocabulary that is smaller than asked for when the data hold fewer tokens."""
    counts = torch.tensor([0, 0, 7, 0, 0, 1, 0, 0, 0, 7])
    vocabulary = DraftVocabulary.most_frequent(counts, 4)
    assert vocabulary.target_ids.tolist() == [0, 2, 5, 9]  # the three that occur, and the lowest of the others
    assert vocabulary.coverage(counts) == 1.0
    assert DraftVocabulary.most_frequent(counts, 1).target_ids.tolist() == [2]
    assert DraftVocabulary.most_frequent(counts, 1).coverage(counts) == pytest.approx(7 / 15)
    assert DraftVocabulary.most_frequent(counts, 1).coverage(torch.zeros(10, dtype=torch.int64)) == 0.0


def test_some_tokens_are_kept_whatever_their_counts() -> None:
    """Catches an end of answers that can never be drafted, because plain text has none; and a size it outgrows."""
    counts = torch.tensor([5, 0, 7, 0, 9])
    assert DraftVocabulary.most_frequent(counts, 3, always=(3,)).target_ids.tolist() == [2, 3, 4]
    assert DraftVocabulary.most_frequent(counts, 3, always=(4, 4)).target_ids.tolist() == [0, 2, 4]
    assert counts.tolist() == [5, 0, 7, 0, 9]
    with pytest.raises(ForerunError, match="size 1 is below the 2 ids"):
        DraftVocabulary.most_frequent(counts, 1, always=(3, 1))


@given(counts=st.lists(st.integers(0, 3), min_size=1, max_size=12), data=st.data())
def test_the_most_frequent_tokens_are_kept(counts: list[int], data: st.DataObject) -> None:
    """By definition: no token outside is more frequent than one inside, and equal ones go by the lower id."""
    size = data.draw(st.integers(1, len(counts)))
    kept = DraftVocabulary.most_frequent(torch.tensor(counts), size).target_ids.tolist()
    assert kept == sorted(sorted(range(len(counts)), key=lambda token: (-counts[token], token))[:size])


@pytest.mark.parametrize("ids", [[], [3, 3], [5, 3], [-1, 2], [2, 10]])
def test_ids_that_are_no_choice_are_refused(ids: list[int]) -> None:
    """Catches damaged maps."""
    with pytest.raises(ForerunError, match=r"not strictly ascending within 0\.\.9"):
        DraftVocabulary(torch.tensor(ids, dtype=torch.int64), 10)


@pytest.mark.parametrize("size", [0, 11])
def test_impossible_sizes_are_refused(size: int) -> None:
    """Catches a size that is silently cut."""
    with pytest.raises(ForerunError, match=rf"size {size} must lie in 1\.\.10"):
        DraftVocabulary.most_frequent(torch.zeros(10, dtype=torch.int64), size)


def test_the_fingerprint_follows_the_choice() -> None:
    """Catches features or drafters that are reused after the vocabulary changed."""
    fingerprint = DraftVocabulary(KEPT, 10).fingerprint
    assert fingerprint == DraftVocabulary(KEPT.clone(), 10).fingerprint
    assert fingerprint != DraftVocabulary(torch.tensor([0, 3, 5, 8]), 10).fingerprint


SEED, REQUESTS, TOKENS, ALPHA, VOCAB = 40, 7, 100, 1e-4, 6


@pytest.mark.usefixtures("unchecked_shapes")
def test_tokens_outside_come_out_with_the_targets_probability() -> None:
    """C54 and C06 through the engine. Catches answers that lose every token the drafter cannot propose."""
    logits = 1.5 * torch.randn(VOCAB, VOCAB, dtype=torch.float64, generator=torch.Generator().manual_seed(SEED))
    target = markov_target(logits, max_positions=TOKENS + 8)
    drafter = tiny_drafter(target, vocabulary=DraftVocabulary(torch.tensor([0, 2, 3]), VOCAB))
    followers = {token: Counter[int]() for token in range(VOCAB)}
    batch = generate_batch(
        target, [[1]] * REQUESTS, drafter=drafter, horizon=3, max_new_tokens=TOKENS, seed=SEED, max_batch=REQUESTS
    )
    for token_ids in batch.token_ids:
        for token, following in pairwise([1, *token_ids]):
            followers[token][following] += 1
    values = {
        token: chi_square_p_value(
            [counts[following] for following in range(VOCAB)], plain_row(logits[token].tolist(), SamplingParams())
        )
        for token, counts in followers.items()
    }
    assert min(values.values()) > ALPHA / VOCAB, values
    assert all(sum(followers[token].values()) > 20 for token in (1, 4, 5))
    assert 0 < batch.totals.accepted < batch.totals.drafted


def test_copies_on_a_device_serve_training_after_decoding() -> None:
    """Catches a map that was copied while decoding and that autograd then refuses to keep."""
    vocabulary = DraftVocabulary(torch.tensor([0, 2]), 4)
    with torch.inference_mode():
        vocabulary.spread(torch.zeros(1, 2, device="meta"))
    logits = torch.zeros(1, 2, device="meta", requires_grad=True)
    assert vocabulary.spread(logits).requires_grad
