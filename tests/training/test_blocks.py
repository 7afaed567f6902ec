"""Positions, counted by hand: what a slot reads, predicts and may see."""

import pytest
import torch
from torch import Tensor

from forerun.training import FeatureRow
from forerun.training.blocks import BlockBatch, anchor_range, make_batch
from tests.exactness.statistics import chi_square_p_value

HIDDEN, LAYERS = 8, 2


def row(length: int, prompt_length: int, *, first: int = 100) -> FeatureRow:
    """Token i of the row is ``first + i``, and everything that belongs to it can be recognised by that number."""
    token_ids = torch.arange(first, first + length)
    values = token_ids.float()
    return FeatureRow(
        job=f"p{first}/0",
        prompt_length=prompt_length,
        token_ids=token_ids,
        features=values[:, None, None].expand(length, LAYERS, HIDDEN).half(),
        final_hidden=values[:, None].expand(length, HIDDEN).half(),
        log_normaliser=values,
    )


def anchors_of(batch: BlockBatch, index: int) -> list[int]:
    """Anchors of the blocks that are not only there to fill the shape."""
    return batch.inputs.anchors[index][batch.valid[index, :, 0]].tolist()


@pytest.mark.parametrize("slots", [1, 3, 8])
def test_ten_tokens_by_hand(slots: int) -> None:
    """C46. A prompt of four tokens, an answer at 4..9. Catches labels, laws and inputs shifted by one."""
    ten = row(10, 4)
    batch = make_batch([ten], blocks=5, slots=slots, generator=None)
    assert anchors_of(batch, 0) == [4, 5, 6, 7, 8]
    for block, anchor in enumerate([4, 5, 6, 7, 8]):
        for slot in range(slots):
            decided = anchor + slot + 1  # index of the predicted token
            assert bool(batch.valid[0, block, slot]) == (decided <= 9)
            if decided <= 9:
                assert int(batch.labels[0, block, slot]) == 100 + decided
                assert int(batch.inputs.previous[0, block, slot]) == 100 + decided - 1
                # the target's state and law that decide a token stand at the token before it
                assert float(batch.log_normaliser[0, block, slot]) == 100 + decided - 1
                assert set(batch.final_hidden[0, block, slot].tolist()) == {100.0 + decided - 1}
    labels = [sorted(batch.labels[0, :, slot][batch.valid[0, :, slot]].tolist()) for slot in range(slots)]
    assert labels[0] == [105, 106, 107, 108, 109]  # e - s labels for the first slot, one fewer for each further one
    assert [len(each) for each in labels] == [max(0, 5 - slot) for slot in range(slots)]


def test_anchors_are_the_tokens_that_decoding_can_hold_last() -> None:
    """Catches anchors inside the prompt (never the last committed token) and at the end (nothing left to predict)."""
    assert list(anchor_range(row(10, 4))) == [4, 5, 6, 7, 8]
    assert list(anchor_range(row(6, 4))) == [4]
    assert list(anchor_range(row(5, 4))) == []
    assert list(anchor_range(row(4, 4))) == []


def test_padding_belongs_to_no_row() -> None:
    """Catches a short row whose labels or validity come from the batch's length instead of its own."""
    short, long = row(6, 3, first=500), row(12, 2, first=700)
    both = make_batch([short, long], blocks=9, slots=4, generator=None)
    alone = make_batch([short], blocks=9, slots=4, generator=None)
    assert anchors_of(both, 0) == anchors_of(alone, 0) == [3, 4]
    assert anchors_of(both, 1) == list(range(2, 11))
    assert torch.equal(both.valid[0], alone.valid[0])
    used = alone.valid[0]
    for mine, own in (
        (both.labels, alone.labels),
        (both.inputs.previous, alone.inputs.previous),
        (both.log_normaliser, alone.log_normaliser),
        (both.final_hidden, alone.final_hidden),
    ):
        assert torch.equal(mine[0][used], own[0][used])
    assert both.inputs.features.shape == (2, 12, LAYERS, HIDDEN)
    assert not both.inputs.features[0, 6:].any()


def test_blocks_that_only_fill_the_shape_count_for_nothing() -> None:
    batch = make_batch([row(6, 3)], blocks=5, slots=2, generator=None)
    assert batch.valid[0].tolist() == [[True, True], [True, False]] + [[False, False]] * 3


def test_validation_takes_the_same_evenly_spaced_anchors_every_time() -> None:
    """Catches validation numbers that move because the anchors do."""
    assert anchors_of(make_batch([row(31, 10)], blocks=5, slots=2, generator=None), 0) == [10, 14, 19, 24, 29]
    assert anchors_of(make_batch([row(31, 10)], blocks=1, slots=2, generator=None), 0) == [10]
    assert anchors_of(make_batch([row(31, 10)], blocks=99, slots=2, generator=None), 0) == list(range(10, 30))


def test_training_anchors_are_drawn_without_replacement_and_evenly() -> None:
    """Catches anchors drawn twice, an end of the range left out, and draws that ignore the generator.

    Seeds 0..499, five anchors of ten each, alpha 1e-4. The counts are less variable than independent draws', which
    makes the test stricter only where a class is drawn too often.
    """
    counts = dict.fromkeys(range(4, 14), 0)
    for seed in range(500):
        batch = make_batch([row(15, 4)], blocks=5, slots=1, generator=torch.Generator().manual_seed(seed))
        chosen = anchors_of(batch, 0)
        assert len(chosen) == len(set(chosen)) == 5
        for anchor in chosen:
            counts[anchor] += 1
    assert chi_square_p_value(list(counts.values()), [0.1] * 10) > 1e-4, counts

    def drawn(seed: int) -> Tensor:
        return make_batch([row(40, 4)], blocks=5, slots=1, generator=torch.Generator().manual_seed(seed)).inputs.anchors

    assert torch.equal(drawn(7), drawn(7)) and not torch.equal(drawn(7), drawn(8))
