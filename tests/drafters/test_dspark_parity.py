"""DSpark in training and in decoding is one function, and training shows it nothing that decoding would not.

Rule 4 of the design. Decoding is made to draw the tokens of a given text, so that both sides speak of the same blocks.
"""

from dataclasses import replace
from functools import cache

import pytest
import torch
from jaxtyping import Float, Int
from torch import Tensor

from forerun.distributions import Processing, SamplingParams
from forerun.drafters import DSparkDrafter
from forerun.models import TransformersTarget, tiny_target
from forerun.training.blocks import block_visibility, make_batch
from forerun.training.features import FeatureRow
from forerun.training.teacher import Teacher, draft_logits
from tests.support.dspark import BLOCK, every_other, taught_row, tiny_dspark

VOCAB = 24
PROMPT_LENGTH = 5
ROUNDING = 2e-5
"""Probabilities in float32 after two layers and a softmax; a position off by one moves them by 0.1."""
TEXT = torch.tensor([int(character, 36) % VOCAB for character in "thecatsatonthematandthenitranawayagain"])


@cache
def target() -> TransformersTarget:
    return tiny_target(vocab_size=VOCAB, dtype=torch.float32)


@cache
def drafter(*, pruned: bool) -> DSparkDrafter:
    return tiny_dspark(target(), vocabulary=every_other(target()) if pruned else None)


@cache
def row() -> FeatureRow:
    return taught_row(target(), TEXT, prompt_length=PROMPT_LENGTH)


def trained_logits(own: DSparkDrafter, rows: list[FeatureRow], *, blocks: int = 64) -> tuple[Tensor, Tensor, Tensor]:
    """Training's logits, confidence and anchors; all anchors of every row, in order."""
    batch = make_batch(rows, blocks=blocks, slots=BLOCK, generator=None)
    with torch.no_grad():
        logits, confidence = draft_logits(own.network, Teacher(target(), own.vocabulary), batch)
    return logits, confidence, batch.anchors


def decoded_laws(own: DSparkDrafter, text: Int[Tensor, " length"], anchor: int) -> Float[Tensor, "slots vocab"]:
    """Decoding's laws at one anchor, made to draw the tokens of the text: numbers in the middle of their intervals."""
    session = own.new_session()
    cache = target().new_cache()
    split = anchor // 2  # the context comes in two pieces, as it does in decoding
    for piece in (text[:split], text[split:anchor]):
        session.extend(piece, target().forward(piece, cache, captured=own.captured_layers).features)
    processing = Processing(SamplingParams(), text[: anchor + 1].tolist())
    numbers = torch.zeros(BLOCK, dtype=torch.float64)
    for slot in range(BLOCK):
        proposal = session.propose(int(text[anchor]), slot + 1, processing, uniforms=numbers[: slot + 1])
        laws = proposal.law.dense()
        token = int(text[anchor + slot + 1])
        numbers[slot] = laws[slot, :token].sum() + laws[slot, token] / 2
        assert proposal.token_ids[:slot].tolist() == text[anchor + 1 : anchor + slot + 1].tolist()
    return laws


def test_training_and_decoding_compute_the_same_laws() -> None:
    """Catches another rotary position, another mask, a feature of the anchor itself, a Markov term of another token."""
    own = drafter(pruned=False)
    logits, _, anchors = trained_logits(own, [row()])
    probs = logits.softmax(-1)[0]
    checked = 0
    for block, anchor in enumerate(anchors[0].tolist()):
        if PROMPT_LENGTH <= anchor < len(TEXT) - BLOCK and anchor % 2 == 0:
            found = decoded_laws(own, TEXT, anchor)
            torch.testing.assert_close(probs[block].double(), found, rtol=0, atol=ROUNDING, msg=f"anchor {anchor}")
            checked += 1
    assert checked >= 14


def test_a_pruned_vocabulary_is_the_same_in_training_and_decoding() -> None:
    """Catches draft ids taken for target ids; tokens outside share one row of the Markov table."""
    own = drafter(pruned=True)
    text = TEXT // 2 * 2  # decoding can be made to draw tokens of the draft vocabulary only
    anchor = 11
    text[anchor] += 1  # the anchor may be any token
    logits, _, anchors = trained_logits(own, [taught_row(target(), text, prompt_length=PROMPT_LENGTH)])
    block = anchors[0].tolist().index(anchor)
    found = decoded_laws(own, text, anchor)
    torch.testing.assert_close(logits[0, block].softmax(-1).double(), found[:, ::2], rtol=0, atol=ROUNDING)
    assert float(found[:, 1::2].abs().max()) == 0.0


def test_later_tokens_and_features_do_not_leak_into_earlier_blocks() -> None:
    """Catches a mask that lets a block see the future; earlier blocks must not change by a single bit."""
    own = drafter(pruned=False)
    logits, confidence, anchors = trained_logits(own, [row()])
    cut = 20
    features, token_ids = row().features.clone(), TEXT.clone()
    features[cut:] = torch.randn(features[cut:].shape, generator=torch.Generator().manual_seed(1))
    token_ids[cut + 1 :] = token_ids[cut + 1 :].flip(0)
    changed = replace(row(), token_ids=token_ids, features=features)
    other_logits, other_confidence, _ = trained_logits(own, [changed])
    for block, anchor in enumerate(anchors[0].tolist()):
        # slot j reads tokens up to anchor + j and features before the anchor
        for slot in range(BLOCK):
            if anchor + slot <= cut:
                assert torch.equal(logits[0, block, slot], other_logits[0, block, slot])
                assert torch.equal(confidence[0, block, slot], other_confidence[0, block, slot])
        if anchor > cut:
            assert not torch.equal(logits[0, block], other_logits[0, block])


@pytest.mark.parametrize("place", [12, 13])
def test_the_features_of_the_anchor_and_after_are_not_read(place: int) -> None:
    """Catches visibility up to and including the anchor: decoding has no features of its last committed token."""
    own = drafter(pruned=False)
    anchor = 12
    logits, _, anchors = trained_logits(own, [row()])
    block = anchors[0].tolist().index(anchor)
    features = row().features.clone()
    features[place] += 1.0
    other, _, _ = trained_logits(own, [replace(row(), features=features)])
    assert torch.equal(logits[0, block], other[0, block])
    features[anchor - 1] += 1.0
    seen, _, _ = trained_logits(own, [replace(row(), features=features)])
    assert not torch.equal(logits[0, block], seen[0, block])


def test_rows_in_one_batch_are_the_rows_alone() -> None:
    """Catches padding that is attended to, and blocks that see those of another row."""
    own = drafter(pruned=False)
    short = taught_row(target(), TEXT[:17], prompt_length=9)
    rows = [row(), short]
    together, confidence, _ = trained_logits(own, rows)
    valid = make_batch(rows, blocks=64, slots=BLOCK, generator=None).valid
    for index, single in enumerate(rows):
        alone, own_confidence, _ = trained_logits(own, [single])
        labelled = valid[index]
        anchors = len(single.token_ids) - 1 - single.prompt_length
        assert int(labelled[:, 0].sum()) == anchors
        assert int(labelled.sum()) == BLOCK * anchors - BLOCK * (BLOCK - 1) // 2  # the last blocks are cut
        torch.testing.assert_close(together[index][labelled], alone[0][labelled], rtol=0, atol=ROUNDING)
        torch.testing.assert_close(confidence[index][labelled], own_confidence[0][labelled], rtol=0, atol=ROUNDING)


def test_visibility_by_definition() -> None:
    """The oracle asks for every pair of slot and key whether decoding would have the key."""
    anchors = torch.tensor([[2, 5, 0], [1, 1, 6]])
    length, slots = 7, 3
    visible = block_visibility(anchors, length=length, slots=slots)
    assert visible.shape == (2, 3 * slots, length + 3 * slots)
    for batch_row in range(2):
        for block in range(3):
            for slot in range(slots):
                for key in range(length + 3 * slots):
                    if key < length:
                        expected = key < int(anchors[batch_row, block])
                    else:
                        expected = (key - length) // slots == block
                    assert bool(visible[batch_row, block * slots + slot, key]) == expected


def test_packed_layers_compute_the_same_laws() -> None:
    """Catches a packed head or layer that is another matrix."""
    plain = drafter(pruned=False)
    packed = DSparkDrafter(plain.network, plain.vocabulary, target(), optimize=True)
    torch.testing.assert_close(decoded_laws(packed, TEXT, 13), decoded_laws(plain, TEXT, 13), rtol=0, atol=ROUNDING)


def test_the_confidence_head_does_not_bend_the_backbone() -> None:
    """Catches gradients of the calibration in the backbone; the Markov table, which both heads read, has them."""
    own = tiny_dspark(target())
    own.network.requires_grad_(True)
    batch = make_batch([row()], blocks=4, slots=BLOCK, generator=None)
    _, confidence = draft_logits(own.network, Teacher(target(), own.vocabulary), batch)
    confidence.sum().backward()
    touched = {name for name, weight in own.network.named_parameters() if weight.grad is not None}
    assert touched == {"confidence.weight", "confidence.bias", "markov_previous.weight"}
