"""A real byte-level tokenizer with a chat template, made on the spot: no file, no network."""

from collections.abc import Mapping
from functools import cache

from tokenizers import Tokenizer as RawTokenizer
from tokenizers import decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from forerun.models import Tokenizer

VOCAB_SIZE = 300
"""Four special tokens, 256 bytes and up to 40 merges."""

BOS, EOS, USER, ASSISTANT = "<bos>", "<eos>", "<user>", "<assistant>"
SPECIAL_TOKENS = (BOS, EOS, USER, ASSISTANT)

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)

_TEXT = ("the cat sat on the mat and then the cat ate the rat", "when the rain in the land ends we can all go out")


@cache
def byte_tokenizer(*, chat_template: bool = True) -> PreTrainedTokenizerFast:
    """Byte-level BPE; raw text gets a BOS in front, as in Llama and Gemma, and the chat template writes its own."""
    raw = RawTokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    raw.train_from_iterator(_TEXT, trainer)
    raw.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, raw.token_to_id(BOS))])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, bos_token=BOS, eos_token=EOS)
    if chat_template:
        tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def text_tokenizer(vocab_size: int = VOCAB_SIZE) -> Tokenizer:
    """The same behind the package's interface."""
    return Tokenizer(byte_tokenizer(), vocab_size)


def respelled(spellings: Mapping[str, str]) -> Tokenizer:
    """The same with some special tokens spelled otherwise."""
    text = byte_tokenizer().backend_tokenizer.to_str()
    for old, new in spellings.items():
        text = text.replace(old, new)
    return Tokenizer(PreTrainedTokenizerFast(tokenizer_object=RawTokenizer.from_str(text)), VOCAB_SIZE)
