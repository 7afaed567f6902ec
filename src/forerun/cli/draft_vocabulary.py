"""From ``--draft-vocab`` to the tokens that a draft model may propose."""

from __future__ import annotations

from pathlib import Path

import torch
from jaxtyping import Int
from rich.console import Console
from torch import Tensor

from forerun.drafters import DraftVocabulary
from forerun.errors import ForerunError
from forerun.models import TransformersTarget
from forerun.models.quiet import quiet_transformers
from forerun.training.jsonl import read_jsonl


def pick_vocabulary(word: str, target: TransformersTarget) -> DraftVocabulary:
    """``SIZE``, ``FILE`` or ``FILE:SIZE``; says on standard error what was kept.

    A size alone keeps the lowest ids, which byte-pair tokenizers gave to the tokens that they merged first. A file's
    tokens are counted: all that occur are kept, or the most frequent ones. Stop ids are always kept.

    Raises:
        ForerunError: no such file, nothing in it, or a size that the vocabulary does not have.
    """
    if word.isdecimal():
        # the lowest ids are the most frequent ones of no occurrences at all
        vocabulary = _most_frequent(torch.zeros(target.vocab_size, dtype=torch.int64), int(word), target)
        _say(vocabulary, "the lowest ids")
        return vocabulary
    name, separator, size = word.rpartition(":")
    if not (separator and size.isdecimal()):
        name, size = word, ""
    counts = _counts(Path(name), target)
    held = set(counts.nonzero()[:, 0].tolist()) | set(target.stop_ids)
    vocabulary = _most_frequent(counts, int(size) if size else len(held), target)
    _say(vocabulary, f"{100 * vocabulary.coverage(counts):.2f} % of {Path(name).name}")
    return vocabulary


def _most_frequent(counts: Int[Tensor, " vocab"], size: int, target: TransformersTarget) -> DraftVocabulary:
    return DraftVocabulary.most_frequent(counts, size, always=target.stop_ids)


def _say(vocabulary: DraftVocabulary, what: str) -> None:
    Console(stderr=True).print(
        f"draft vocabulary: {len(vocabulary)} of {vocabulary.target_vocab_size} tokens, {what}, "
        f"map {vocabulary.fingerprint[:12]}",
        style="dim",
    )


def _counts(path: Path, target: TransformersTarget) -> Int[Tensor, " vocab"]:
    """Of every token: in the answers of ``forerun data regenerate``, or in a text."""
    if path.suffix == ".jsonl":
        ids = [token_id for row in read_jsonl(path) for token_id in _answer_ids(row, path)]
    else:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ForerunError(f"{path} cannot be read as text ({error}); give a text file, or answers") from error
        with quiet_transformers():  # it warns of texts above the model's context, which nobody feeds to the model here
            ids = target.tokenizer.encode_inner(text)
    if not ids:
        raise ForerunError(f"{path} holds no tokens to count; give a text file, or answers of forerun data regenerate")
    if not 0 <= min(ids) <= max(ids) < target.vocab_size:
        raise ForerunError(f"{path} holds ids outside the {target.vocab_size} tokens of {target.name}")
    return torch.bincount(torch.tensor(ids), minlength=target.vocab_size)


def _answer_ids(row: dict[str, object], path: Path) -> list[int]:
    ids = row.get("answer_ids")
    if not isinstance(ids, list) or not all(isinstance(token_id, int) for token_id in ids):
        raise ForerunError(f"{path}: a row has no list answer_ids; give answers of forerun data regenerate, or a text")
    return ids
