"""Positions, counted by hand: what a slot reads, predicts and may see."""

import pytest
import torch
from torch import Tensor

from forerun.drafters import DSparkConfig
from forerun.drafters.dspark import DSparkNetwork
from forerun.training import FeatureRow
from forerun.training.blocks import BlockBatch, anchor_range, block_visibility, make_batch
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
    return batch.anchors[index][batch.valid[index, :, 0]].tolist()


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
                assert int(batch.previous[0, block, slot]) == 100 + decided - 1
                # the target's state and law that decide a token stand at the token before it
                assert float(batch.log_normaliser[0, block, slot]) == 100 + decided - 1
                assert set(batch.final_hidden[0, block, slot].tolist()) == {100.0 + decided - 1}
    labels = [sorted(batch.labels[0, :, slot][batch.valid[0, :, slot]].tolist()) for slot in range(slots)]
    assert labels[0] == [105, 106, 107, 108, 109]  # e - s labels for the first slot, one fewer for each further one
    assert [len(each) for each in labels] == [max(0, 5 - slot) for slot in range(slots)]


def test_a_slot_sees_the_tokens_before_its_anchor_and_its_own_block() -> None:
    """Catches features of the anchor itself (not there yet in decoding), causal blocks, and blocks that see others."""
    anchors = torch.tensor([[4, 7]])
    visible = block_visibility(anchors, length=10, slots=3)
    assert visible.shape == (1, 6, 16)
    for query in range(6):
        block = query // 3
        context = [index for index in range(10) if index < [4, 7][block]]
        own = [10 + 3 * block + slot for slot in range(3)]
        assert visible[0, query].nonzero().flatten().tolist() == context + own


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
        (both.previous, alone.previous),
        (both.log_normaliser, alone.log_normaliser),
        (both.final_hidden, alone.final_hidden),
    ):
        assert torch.equal(mine[0][used], own[0][used])
    assert both.features.shape == (2, 12, LAYERS, HIDDEN)
    assert not both.features[0, 6:].any()
    assert not both.visible[0, :, 6:12].any()  # no slot of the short row sees its padding


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
        return make_batch([row(40, 4)], blocks=5, slots=1, generator=torch.Generator().manual_seed(seed)).anchors

    assert torch.equal(drawn(7), drawn(7)) and not torch.equal(drawn(7), drawn(8))


def network() -> DSparkNetwork:
    config = DSparkConfig(
        hidden_size=HIDDEN, target_vocab_size=16, captured_layers=(0, 1), num_layers=2, num_heads=2, num_kv_heads=1,
        head_dim=4, intermediate_size=16, block_size=3, markov_rank=4, draft_vocab_size=16, rope_theta=1e4,
        norm_eps=1e-6, max_positions=64,
    )  # fmt: skip
    made = DSparkNetwork(config)
    made.initialise(generator=torch.Generator().manual_seed(0), final_norm_weight=torch.ones(HIDDEN))
    for parameter in made.parameters():
        parameter.requires_grad_(False).mul_(3.0)  # away from the near-linear start, so that every input matters
    return made


def test_features_from_the_anchor_on_change_nothing() -> None:
    """Catches a leak through the network: in decoding, the anchor's features are not there yet."""
    model, generator = network(), torch.Generator().manual_seed(1)
    features = torch.randn(1, 10, LAYERS, HIDDEN, generator=generator)
    embeddings = torch.randn(1, 2, HIDDEN, generator=generator)
    anchors = torch.tensor([[4, 7]])
    visible = block_visibility(anchors, length=10, slots=3)

    def hidden(changed: int | None) -> Tensor:
        inputs = features.clone()
        if changed is not None:
            inputs[0, changed] += 1.0
        return model.block_hidden(model.context_layers(inputs, 0), embeddings, anchors, visible)[0]

    plain = hidden(None)
    for index in range(10):
        moved = (hidden(index) != plain).any(dim=-1)
        assert moved.tolist() == [[index < 4] * 3, [index < 7] * 3], index


def test_a_block_is_the_same_alone_and_among_others() -> None:
    """Mask equals dropping: catches blocks of one row that influence each other."""
    model, generator = network(), torch.Generator().manual_seed(2)
    features = torch.randn(1, 10, LAYERS, HIDDEN, generator=generator)
    embeddings = torch.randn(1, 2, HIDDEN, generator=generator)
    anchors = torch.tensor([[4, 7]])
    visible = block_visibility(anchors, length=10, slots=3)
    together = model.block_hidden(model.context_layers(features, 0), embeddings, anchors, visible)
    for block, anchor in enumerate([4, 7]):
        context = model.context_layers(features[:, :anchor], 0)  # what decoding holds
        alone = model.block_hidden(context, embeddings[:, block : block + 1], anchors[:, block : block + 1], None)
        torch.testing.assert_close(alone[0, 0], together[0, block], rtol=1e-5, atol=1e-5)
