"""From a word on the command line to a drafter."""

from __future__ import annotations

from forerun.drafters import Drafter, DraftModel, PromptLookup, load_drafter
from forerun.errors import ForerunError
from forerun.models import TransformersTarget, load_target
from forerun.recipes import embedded_drafter


def pick_drafter(word: str, target: TransformersTarget, *, optimize: bool) -> Drafter | None:
    """``auto``, ``none``, ``prompt-lookup``, ``model:NAME`` or a drafter folder.

    Raises:
        ForerunError: ``auto`` for a target that no drafter ships for, or see ``load_drafter``.
    """
    if word == "none":
        return None
    if word == "prompt-lookup":
        return PromptLookup(target.vocab_size)
    if word.startswith("model:"):
        small = load_target(word.removeprefix("model:"), optimize=optimize)
        _check_same_tokenizer(small, target)
        return DraftModel(small, target)
    if word != "auto":
        return load_drafter(word, target, optimize=optimize)
    folder = embedded_drafter(target.name)
    if folder is None:
        raise ForerunError(f"no drafter ships for {target.name}; give --drafter FOLDER, prompt-lookup or none")
    return load_drafter(folder, target, optimize=optimize)


def _check_same_tokenizer(small: TransformersTarget, target: TransformersTarget) -> None:
    own, theirs = target.tokenizer.token_hashes(), small.tokenizer.token_hashes()
    if len(own) != len(theirs):
        return  # DraftModel says so with both sizes
    differing = (own != theirs).nonzero()
    if len(differing):
        first = int(differing[0, 0])
        raise ForerunError(
            f"{small.name} has another tokenizer: id {first} is {small.tokenizer.token_of(first)!r} there and "
            f"{target.tokenizer.token_of(first)!r} in {target.name}; choose a pair that shares one tokenizer"
        )
