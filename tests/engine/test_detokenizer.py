"""Text in pieces, without broken characters (C23)."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as RawTokenizer
from tokenizers import decoders, models
from transformers import PreTrainedTokenizerFast

from forerun.engine.detokenizer import Detokenizer
from forerun.models import Tokenizer
from tests.support.tokenizers import EOS, SPECIAL_TOKENS, VOCAB_SIZE, text_tokenizer

BYTES = text_tokenizer()
BROKEN = "\ufffd"


def metaspace_tokenizer() -> Tokenizer:
    """Llama's and SmolLM's elder relatives: a word carries its space in front, and decoding strips the first one."""
    words = ["<s>", "\u2581the", "\u2581cat", "s", "\u2581", "\u2581sat"]
    raw = RawTokenizer(models.BPE(vocab={word: index for index, word in enumerate(words)}, merges=[]))
    raw.decoder = decoders.Metaspace()
    raw.add_special_tokens(["<s>"])
    return Tokenizer(PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>"), len(words))


def pieces(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    detokenizer = Detokenizer(tokenizer.decode)
    return [*(detokenizer.push(token_id) for token_id in ids), detokenizer.flush()]


def test_characters_of_several_tokens_come_out_whole() -> None:
    """Catches decoding token by token: two bytes of an accent, four of an emoji."""
    ids = BYTES.encode("a\u00e9\U0001f642b")[1:]
    assert len(ids) == 1 + 2 + 4 + 1
    assert pieces(BYTES, ids) == ["a", "", "\u00e9", "", "", "", "\U0001f642", "b", ""]


def test_an_incomplete_character_comes_out_once_at_the_end() -> None:
    """Catches a tail that is lost, or that is shown in every piece until it is whole."""
    ids = BYTES.encode("a\U0001f642")[1:4]
    assert pieces(BYTES, ids) == ["a", "", "", BYTES.decode(ids[1:])]


def test_a_broken_character_does_not_hold_the_rest_back() -> None:
    """Catches a stream that stands still after bytes that never become a character."""
    emoji = BYTES.encode("\U0001f642")[1:]
    ids = [*emoji[:2], *BYTES.encode("xy")[1:]]
    assert pieces(BYTES, ids) == ["", "", f"{BROKEN}x", "y", ""]


@given(ids=st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=12))
def test_pieces_joined_are_the_whole_decoding(ids: list[int]) -> None:
    """Any tokens: broken bytes, special tokens, merges. Catches text that is lost, doubled or reordered."""
    chunks = pieces(BYTES, ids)
    assert "".join(chunks) == BYTES.decode(ids)
    if BROKEN not in BYTES.decode(ids):
        assert all(BROKEN not in chunk for chunk in chunks)


@given(ids=st.lists(st.integers(0, 5), max_size=10))
def test_pieces_joined_are_the_whole_decoding_where_words_carry_spaces(ids: list[int]) -> None:
    """Catches spaces that are lost at the border of two pieces, also behind a special token, which has no text."""
    tokenizer = metaspace_tokenizer()
    assert "".join(pieces(tokenizer, ids)) == tokenizer.decode(ids)


@given(ids=st.lists(st.integers(len(SPECIAL_TOKENS), VOCAB_SIZE - 1), max_size=10), cut=st.integers(0, 10))
def test_a_copy_goes_its_own_way(ids: list[int], cut: int) -> None:
    """Catches state that a look ahead shares with the answer."""
    original = Detokenizer(BYTES.decode)
    before = [original.push(token_id) for token_id in ids[:cut]]
    twin = original.copy()
    ahead = [twin.push(token_id) for token_id in [*reversed(ids)]]
    after = [original.push(token_id) for token_id in ids[cut:]]
    assert "".join([*before, *after, original.flush()]) == BYTES.decode(ids)
    assert "".join([*before, *ahead, twin.flush()]) == BYTES.decode([*ids[:cut], *reversed(ids)])


@pytest.mark.parametrize("text", ["plain", "\u00e9\u00e8", "\u4f60\u597d", "a\u0301"])
def test_text_survives(text: str) -> None:
    """Catches an end of text token that is shown, and pieces that are out of order."""
    ids = [*BYTES.encode(text)[1:], SPECIAL_TOKENS.index(EOS)]
    chunks = pieces(BYTES, ids)
    assert "".join(chunks) == text
    assert all(text.find(first + second) >= 0 for first, second in pairwise(chunks))
