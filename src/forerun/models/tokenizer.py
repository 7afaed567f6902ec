"""Text to ids and back, through the tokenizer that came with the target."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import final

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from forerun.errors import ForerunError


@final
class Tokenizer:
    """The target's tokenizer with its chat template; renders once, never adds a second BOS."""

    def __init__(self, inner: PreTrainedTokenizerBase, vocab_size: int) -> None:
        self._inner = inner
        self._vocab_size = vocab_size

    def encode(self, text: str) -> list[int]:
        """Ids of raw text, with the special tokens this tokenizer adds by itself (a BOS, for families that use one)."""
        return list(self._inner(text)["input_ids"])

    def encode_inner(self, text: str) -> list[int]:
        """Ids of a piece of text that stands inside an answer: without special tokens."""
        return list(self._inner(text, add_special_tokens=False)["input_ids"])

    def decode(self, token_ids: list[int]) -> str:
        """Text of ``token_ids`` without special tokens."""
        return str(self._inner.decode(token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def token_of(self, token_id: int) -> str:
        """The vocabulary's own spelling of one id; ids past the vocabulary read ``<unused ID>``."""
        token = self._inner.convert_ids_to_tokens(token_id)
        return token if isinstance(token, str) else f"<unused {token_id}>"

    def render(self, messages: list[dict[str, str]]) -> str:
        """A conversation as the text the target reads, ending where the assistant's answer begins.

        Raises:
            ForerunError: the tokenizer has no chat template.
        """
        if self._inner.chat_template is None:
            raise ForerunError(
                "this target's tokenizer has no chat template; give raw text (--raw) instead of a chat prompt"
            )
        return str(self._inner.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))

    def chat(self, messages: list[dict[str, str]]) -> list[int]:
        """Ids of a rendered conversation. The template writes the special tokens itself, so none are added."""
        return list(self._inner(self.render(messages), add_special_tokens=False)["input_ids"])

    @property
    def has_chat_template(self) -> bool:
        """Whether ``chat`` can be used."""
        return self._inner.chat_template is not None

    def save(self, folder: Path) -> None:
        """Write its files, as transformers reads them."""
        self._inner.save_pretrained(folder)

    def token_hashes(self) -> Int[Tensor, " vocab"]:
        """A 32-bit hash of each id's token.

        A drafter stores these 4 bytes an id, which is enough to name the first id that differs from another tokenizer.
        """
        tokens = self._inner.convert_ids_to_tokens(list(range(self._vocab_size)))
        digests = [hashlib.sha256(str(token).encode()).digest()[:4] for token in tokens]
        return torch.tensor([int.from_bytes(digest, "little", signed=True) for digest in digests], dtype=torch.int32)

    @property
    def fingerprint(self) -> str:
        """Hash of the whole vocabulary and the chat template."""
        digest = hashlib.sha256(self.token_hashes().numpy().tobytes())
        digest.update(str(self._inner.chat_template).encode())
        return digest.hexdigest()
