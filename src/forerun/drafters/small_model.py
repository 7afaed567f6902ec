"""What two drafters share that are smaller models: a fitting pair, reading one request, going back after a draft."""

from __future__ import annotations

from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from forerun.drafters.draft_vocabulary import DraftVocabulary
from forerun.errors import ForerunError
from forerun.models import Block, Target, TransformersTarget


def check_vocabularies(model: Target, target: Target, vocabulary: DraftVocabulary | None = None) -> None:
    """Refuses a pair whose ids do not mean the same tokens.

    Raises:
        ForerunError: the vocabularies differ in size or, where both models have tokenizers, in a token; or the draft
            vocabulary belongs to another one.
    """
    if model.vocab_size != target.vocab_size:
        raise ForerunError(
            f"draft model {model.name} has {model.vocab_size} tokens, {target.name} has {target.vocab_size}; "
            "choose a pair that shares one tokenizer"
        )
    if vocabulary is not None and vocabulary.target_vocab_size != target.vocab_size:
        raise ForerunError(
            f"the draft vocabulary chooses from {vocabulary.target_vocab_size} tokens, {target.name} has "
            f"{target.vocab_size}; count the target's own tokens"
        )
    match model, target:
        case TransformersTarget(has_tokenizer=True), TransformersTarget(has_tokenizer=True):
            _check_tokens(model, target)


def _check_tokens(model: TransformersTarget, target: TransformersTarget) -> None:
    differing = (model.tokenizer.token_hashes() != target.tokenizer.token_hashes()).nonzero()
    if len(differing):
        first = int(differing[0, 0])
        raise ForerunError(
            f"{model.name} has another tokenizer: id {first} is {model.tokenizer.token_of(first)!r} there and "
            f"{target.tokenizer.token_of(first)!r} in {target.name}; choose a pair that shares one tokenizer"
        )


@final
class SmallModel:
    """A model that drafts for another, with the part of its head that is wanted.

    Args:
        model: the small model.
        target: the model it drafts for.
        vocabulary: what can be drafted; ``None`` for every token. Rows of the head that are left out cost nothing.

    Raises:
        ForerunError: see ``check_vocabularies``.
    """

    def __init__(self, model: Target, target: Target, vocabulary: DraftVocabulary | None) -> None:
        check_vocabularies(model, target, vocabulary)
        self.model = model if vocabulary is None else model.with_head_rows(vocabulary.target_ids)
        self.vocabulary = vocabulary
        self.vocab_size = target.vocab_size

    @property
    def name(self) -> str:
        """The model's, with the number of tokens that can be drafted where it is not all of them."""
        return self.model.name if self.vocabulary is None else f"{self.model.name}:{len(self.vocabulary)}-tokens"

    def new_reader(self) -> SmallModelReader:
        """For one request."""
        return SmallModelReader(self.model, self.vocabulary)

    @property
    def num_drafted(self) -> int:
        """Tokens that can be drafted."""
        return self.model.vocab_size


@final
class SmallModelReader:
    """A small model's cache for one request; committed tokens wait until a draft needs them.

    Args:
        model: the small model.
        vocabulary: what the rows of its head stand for; ``None`` where it has them all.
    """

    def __init__(self, model: Target, vocabulary: DraftVocabulary | None = None) -> None:
        self._model = model
        self._vocabulary = vocabulary
        self._cache = model.new_cache()
        self._pending: list[int] = []

    @property
    def length(self) -> int:
        """Tokens taken in."""
        return self._cache.length + len(self._pending)

    def extend(self, token_ids: Int[Tensor, " length"]) -> None:
        """Take in committed tokens."""
        self._pending += token_ids.tolist()

    def read_up_to(self, last_token: int, *further: int) -> Float[Tensor, "num_logits vocab"]:
        """Logits after all tokens taken in and ``last_token``, and after each of ``further`` tokens behind it."""
        unseen = torch.tensor([*self._pending, last_token, *further])
        self._pending = []
        return self.read(unseen, num_logits=1 + len(further))

    def read(
        self, token_ids: Int[Tensor, " length"], *, parents: tuple[int, ...] | None = None, num_logits: int
    ) -> Float[Tensor, "num_logits vocab"]:
        """Logits of the last ``num_logits`` of further tokens; ``parents`` as in ``Block``."""
        block = Block(cache=self._cache, token_ids=token_ids, parents=parents)
        logits = self._model.forward_batch([block], num_logits=num_logits)[0].logits
        return logits if self._vocabulary is None else self._vocabulary.spread(logits)

    def back_to(self, length: int) -> None:
        """Forget what was read from position ``length`` on."""
        self._cache.rollback(length)
