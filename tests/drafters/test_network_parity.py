"""A network in training and in decoding is one function, and training shows it nothing that decoding would not.

Rule 4 of the design, for every architecture. Decoding is made to draw the tokens of a given text, so that both sides
speak of the same blocks.
"""

from dataclasses import replace
from functools import cache

import pytest
import torch
from jaxtyping import Float, Int
from torch import Tensor

from forerun.distributions import Processing, SamplingParams
from forerun.drafters import NetworkDrafter
from forerun.models import TransformersTarget, tiny_target
from forerun.training.blocks import make_batch
from forerun.training.features import FeatureRow
from forerun.training.teacher import Teacher, realised_logits
from tests.support.networks import BLOCK, CONFIGS, every_other, taught_row, tiny_drafter
from tests.support.speed import without_shape_checks

VOCAB = 24
PROMPT_LENGTH = 5
ROUNDING = 2e-5
"""Probabilities in float32 after two layers and a softmax; a position off by one moves them by 0.1."""
TEXT = torch.tensor([int(character, 36) % VOCAB for character in "thecatsatonthematandthenitranawayagain"])


@cache
def target() -> TransformersTarget:
    return tiny_target(vocab_size=VOCAB, dtype=torch.float32)


@cache
def drafter(kind: str = "dspark", *, pruned: bool = False) -> NetworkDrafter:
    return tiny_drafter(target(), kind=kind, vocabulary=every_other(target()) if pruned else None)


def row(kind: str = "dspark") -> FeatureRow:
    return taught_row(target(), TEXT, prompt_length=PROMPT_LENGTH, captured=drafter(kind).captured_layers)


def trained_logits(own: NetworkDrafter, rows: list[FeatureRow], *, blocks: int = 64) -> tuple[Tensor, Tensor]:
    """Training's logits and anchors; all anchors of every row, in order."""
    batch = make_batch(rows, blocks=blocks, slots=BLOCK, generator=None)
    with torch.no_grad(), without_shape_checks():
        logits, _ = realised_logits(own.network, Teacher(target(), own.vocabulary), batch)
    return logits, batch.inputs.anchors


def decoded_laws(own: NetworkDrafter, text: Int[Tensor, " length"], anchor: int) -> Float[Tensor, "slots vocab"]:
    """Decoding's laws at one anchor, made to draw the tokens of the text: numbers in the middle of their intervals.

    They end with the first slot that cannot draw the text's token, where a network lists few candidates.
    """
    session = own.new_session()
    cache = target().new_cache()
    split = anchor // 2  # the context comes in two pieces, as it does in decoding
    with without_shape_checks():
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
            if laws[slot, token] == 0:
                break
    return laws


@pytest.fixture(params=CONFIGS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_training_and_decoding_compute_the_same_laws(kind: str) -> None:
    """Catches another rotary position, another mask, a feature of the anchor itself, a term of another token."""
    own = drafter(kind)
    logits, anchors = trained_logits(own, [row(kind)])
    probs = logits.softmax(-1)[0]
    checked = 0
    for block, anchor in enumerate(anchors[0].tolist()):
        if PROMPT_LENGTH <= anchor < len(TEXT) - BLOCK and anchor % 4 == 0:
            found = decoded_laws(own, TEXT, anchor)
            expected = probs[block, : len(found)].double()
            torch.testing.assert_close(found, expected, rtol=0, atol=ROUNDING, msg=f"anchor {anchor}")
            checked += len(found)
    assert checked >= (7 * BLOCK if own.network.candidates is None else 2 * BLOCK)


def test_a_pruned_vocabulary_is_the_same_in_training_and_decoding(kind: str) -> None:
    """Catches draft ids taken for target ids, above all where a network reads the token before."""
    own = drafter(kind, pruned=True)
    text = TEXT // 2 * 2  # decoding can be made to draw tokens of the draft vocabulary only
    anchor = 11
    text[anchor] += 1  # the anchor may be any token
    taught = taught_row(target(), text, prompt_length=PROMPT_LENGTH, captured=own.captured_layers)
    logits, anchors = trained_logits(own, [taught])
    block = anchors[0].tolist().index(anchor)
    found = decoded_laws(own, text, anchor)
    expected = logits[0, block, : len(found)].softmax(-1).double()
    torch.testing.assert_close(found[:, ::2], expected, rtol=0, atol=ROUNDING)
    assert float(found[:, 1::2].abs().max()) == 0.0


def test_later_tokens_and_features_do_not_leak_into_earlier_blocks(kind: str) -> None:
    """Catches a mask that lets a block see the future; earlier blocks must not change by a single bit."""
    own = drafter(kind)
    logits, anchors = trained_logits(own, [row(kind)])
    cut = 20
    features, token_ids = row(kind).features.clone(), TEXT.clone()
    features[cut:] = torch.randn(features[cut:].shape, generator=torch.Generator().manual_seed(1))
    token_ids[cut + 1 :] = token_ids[cut + 1 :].flip(0)
    changed = replace(row(kind), token_ids=token_ids, features=features)
    other, _ = trained_logits(own, [changed])
    for block, anchor in enumerate(anchors[0].tolist()):
        # slot j reads tokens up to anchor + j and features before the anchor
        for slot in range(BLOCK):
            if anchor + slot <= cut:
                assert torch.equal(logits[0, block, slot], other[0, block, slot])
        if anchor > cut:
            assert not torch.equal(logits[0, block], other[0, block])


@pytest.mark.parametrize("place", [12, 13])
def test_the_features_of_the_anchor_and_after_are_not_read(kind: str, place: int) -> None:
    """Catches visibility up to and including the anchor: decoding has no features of its last committed token."""
    own = drafter(kind)
    anchor = 12
    logits, anchors = trained_logits(own, [row(kind)])
    block = anchors[0].tolist().index(anchor)
    features = row(kind).features.clone()
    features[place] += 1.0
    other, _ = trained_logits(own, [replace(row(kind), features=features)])
    assert torch.equal(logits[0, block], other[0, block])
    features[anchor - 1] += torch.randn(features[0].shape, generator=torch.Generator().manual_seed(2))
    seen, _ = trained_logits(own, [replace(row(kind), features=features)])
    assert not torch.equal(logits[0, block], seen[0, block])


def test_rows_in_one_batch_are_the_rows_alone(kind: str) -> None:
    """Catches padding that is attended to, and blocks that see those of another row."""
    own = drafter(kind)
    short = taught_row(target(), TEXT[:17], prompt_length=9, captured=own.captured_layers)
    rows = [row(kind), short]
    together, _ = trained_logits(own, rows)
    valid = make_batch(rows, blocks=64, slots=BLOCK, generator=None).valid
    for index, single in enumerate(rows):
        alone, _ = trained_logits(own, [single])
        labelled = valid[index]
        anchors = len(single.token_ids) - 1 - single.prompt_length
        assert int(labelled[:, 0].sum()) == anchors
        assert int(labelled.sum()) == BLOCK * anchors - BLOCK * (BLOCK - 1) // 2  # the last blocks are cut
        torch.testing.assert_close(
            together[index][labelled].softmax(-1), alone[0][labelled].softmax(-1), rtol=0, atol=ROUNDING
        )


def test_blocks_of_one_row_are_the_blocks_alone(kind: str) -> None:
    """Packed anchors equal separate ones: catches blocks of one sequence that influence each other."""
    own = drafter(kind)
    together, anchors = trained_logits(own, [row(kind)])
    for anchor in (7, 19, 30):
        taught = replace(row(kind), prompt_length=anchor)
        alone, first = trained_logits(own, [taught], blocks=1)
        assert first.tolist() == [[anchor]]
        block = anchors[0].tolist().index(anchor)
        torch.testing.assert_close(alone[0, 0].softmax(-1), together[0, block].softmax(-1), rtol=0, atol=ROUNDING)


def test_packed_layers_compute_the_same_laws(kind: str) -> None:
    """Catches a packed head or layer that is another matrix."""
    plain = drafter(kind)
    packed = NetworkDrafter(plain.network, plain.vocabulary, target(), optimize=True)
    torch.testing.assert_close(decoded_laws(packed, TEXT, 13), decoded_laws(plain, TEXT, 13), rtol=0, atol=ROUNDING)
