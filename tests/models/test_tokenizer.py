"""Text and ids: special tokens once, tokens named, other vocabularies found."""

import pytest
import torch

from forerun.errors import ForerunError
from forerun.models import Tokenizer, tiny_target
from tests.support.tokenizers import USER, VOCAB_SIZE, byte_tokenizer, respelled, text_tokenizer

MESSAGES = [{"role": "user", "content": "the cat"}]


def test_a_rendered_conversation_has_one_bos() -> None:
    """C52. Catches a second BOS in front of the one that the template wrote."""
    tokenizer = text_tokenizer()
    ids = tokenizer.chat(MESSAGES)
    assert ids.count(0) == 1
    assert ids == [0, 2, *tokenizer.encode("the cat")[1:], 3]
    assert tokenizer.render(MESSAGES) == "<bos><user>the cat<assistant>"


def test_raw_text_gets_the_special_tokens_of_its_family() -> None:
    """Catches raw prompts that lose the BOS a family was trained with."""
    tokenizer = text_tokenizer()
    assert tokenizer.encode("the cat")[0] == 0
    assert tokenizer.decode(tokenizer.encode("the cat")) == "the cat"


def test_decoding_keeps_spaces_and_drops_special_tokens() -> None:
    """Catches the clean-up that eats spaces before punctuation."""
    tokenizer = text_tokenizer()
    text = "we can ' t , you . "
    assert tokenizer.decode([*tokenizer.encode(text), 1]) == text


def test_without_a_template_chat_is_refused() -> None:
    """Catches a prompt that is sent without any markup and nobody notices."""
    tokenizer = Tokenizer(byte_tokenizer(chat_template=False), VOCAB_SIZE)
    assert not tokenizer.has_chat_template
    assert text_tokenizer().has_chat_template
    with pytest.raises(ForerunError, match="no chat template; give raw text"):
        tokenizer.chat(MESSAGES)


def test_hashes_differ_where_a_token_differs_and_nowhere_else() -> None:
    """Catches hashes of the wrong id, and ones that depend on the process."""
    own = text_tokenizer().token_hashes()
    other = respelled({USER: "<person>"}).token_hashes()
    assert own.shape == (VOCAB_SIZE,) and own.dtype == torch.int32
    assert (own != other).nonzero().tolist() == [[2]]
    assert own[0].item() == 1937009903  # first four bytes of SHA-256 of "<bos>", little endian


def test_the_fingerprint_follows_vocabulary_and_template() -> None:
    """Catches caches and drafters that are reused after the template changed."""
    own = text_tokenizer().fingerprint
    assert own == Tokenizer(byte_tokenizer(), VOCAB_SIZE).fingerprint
    assert own != Tokenizer(byte_tokenizer(chat_template=False), VOCAB_SIZE).fingerprint
    assert own != respelled({USER: "<person>"}).fingerprint


def test_ids_past_the_vocabulary_have_a_name_and_a_hash() -> None:
    """Catches padded embedding tables: the target has more rows than the tokenizer has tokens."""
    padded = text_tokenizer(VOCAB_SIZE + 4)
    assert padded.token_of(VOCAB_SIZE + 1) == f"<unused {VOCAB_SIZE + 1}>"
    assert padded.token_of(0) == "<bos>"
    assert len(padded.token_hashes()) == VOCAB_SIZE + 4
    assert padded.decode([VOCAB_SIZE + 1]) == ""


def test_a_target_without_a_tokenizer_says_so() -> None:
    """Catches an attribute error of None."""
    bare = tiny_target()
    assert not bare.has_tokenizer
    with pytest.raises(ForerunError, match="tiny-0 has no tokenizer; give token ids"):
        bare.tokenizer.encode("text")
