"""From a word on the command line to a drafter."""

from __future__ import annotations

from forerun.cli.draft_vocabulary import pick_vocabulary
from forerun.drafters import Drafter, DraftModel, PastOutputs, PromptLookup, SuffixLookup, load_drafter
from forerun.errors import ForerunError
from forerun.models import TransformersTarget, load_target
from forerun.recipes import embedded_drafter


def pick_drafter(
    word: str, target: TransformersTarget, *, optimize: bool, draft_vocab: str | None = None
) -> Drafter | None:
    """``auto``, ``none``, ``prompt-lookup``, ``suffix-lookup``, ``model:NAME`` or a drafter folder.

    Args:
        word: which drafter.
        target: that it drafts for.
        optimize: lay weights out for narrow passes.
        draft_vocab: see ``pick_vocabulary``; for ``model:NAME``.

    Raises:
        ForerunError: ``auto`` for a target that no drafter ships for, a draft vocabulary for another drafter than a
            model, or see ``load_drafter``.
    """
    if draft_vocab is not None and not word.startswith("model:"):
        raise ForerunError(f"--draft-vocab prunes the head of a draft model; --drafter is {word}, give model:NAME")
    if word == "none":
        return None
    if word == "prompt-lookup":
        return PromptLookup(target.vocab_size)
    if word == "suffix-lookup":
        return SuffixLookup(target.vocab_size, past=PastOutputs())
    if word.startswith("model:"):
        small = load_target(word.removeprefix("model:"), optimize=optimize)
        vocabulary = None if draft_vocab is None else pick_vocabulary(draft_vocab, target)
        return DraftModel(small, target, vocabulary=vocabulary)
    if word != "auto":
        return load_drafter(word, target, optimize=optimize)
    folder = embedded_drafter(target.name)
    if folder is None:
        raise ForerunError(
            f"no drafter ships for {target.name}; give --drafter FOLDER, suffix-lookup, prompt-lookup or none"
        )
    return load_drafter(folder, target, optimize=optimize)
