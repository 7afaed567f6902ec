"""Training prompts: which rows may be used, and which are too close to a test suite."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forerun.errors import ForerunError
from forerun.training.jsonl import numbered_jsonl

_NGRAM_WORDS = 13  # the usual length of decontamination n-grams (GPT-3 and after)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPrompt:
    """One user turn with where it came from."""

    id: str
    domain: str
    text: str
    source: str
    license: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSelection:
    """The prompts that remain, and how many were dropped for which reason."""

    prompts: list[TrainingPrompt]
    dropped: Counter[str]


def select_prompts(path: Path, *, licenses: tuple[str, ...], held_out: tuple[Path, ...] = ()) -> PromptSelection:
    """Read prompts, keep those under ``licenses`` that share no 13-word run with a held-out suite.

    Args:
        path: JSON lines with ``id``, ``domain``, ``turns``, ``source`` and ``license``; the first turn is used.
        licenses: accepted values of ``license``; empty for all.
        held_out: JSON-lines files with ``turns``: the suites that evaluation uses.

    Raises:
        ForerunError: a field is missing or an id stands twice (line named), or nothing is left.
    """
    forbidden = {
        gram
        for suite in held_out
        for number, row in numbered_jsonl(suite)
        for turn in _turns(row, suite, number)
        for gram in _ngrams(turn)
    }
    prompts: list[TrainingPrompt] = []
    dropped: Counter[str] = Counter()
    seen: set[str] = set()
    lines: dict[str, int] = {}
    for number, row in numbered_jsonl(path):
        text = _turns(row, path, number)[0].strip()
        if licenses and row.get("license") not in licenses:
            dropped[f"license {row.get('license')}"] += 1
        elif not text:
            dropped["empty prompt"] += 1
        elif text in seen:
            dropped["duplicate"] += 1
        elif not forbidden.isdisjoint(_ngrams(text)):
            dropped["shares a 13-word run with a held-out suite"] += 1
        else:
            seen.add(text)
            prompt = _prompt(row, text, path, number)
            if prompt.id in lines:  # answers are filed under the id: the second prompt's would pass for written
                raise ForerunError(f"{path}, line {number}: id {prompt.id!r} stands in line {lines[prompt.id]} already")
            lines[prompt.id] = number
            prompts.append(prompt)
    if not prompts:
        raise ForerunError(f"{path}: no prompt left ({dict(dropped)}); loosen --license or give another file")
    return PromptSelection(prompts=prompts, dropped=dropped)


def _prompt(row: dict[str, Any], text: str, path: Path, number: int) -> TrainingPrompt:
    missing = [field for field in ("id", "domain", "source", "license") if field not in row]
    if missing:
        raise ForerunError(f"{path}, line {number}: field {missing[0]!r} is missing")
    return TrainingPrompt(
        id=str(row["id"]), domain=str(row["domain"]), text=text, source=str(row["source"]), license=str(row["license"])
    )


def _turns(row: dict[str, Any], path: Path, number: int) -> list[str]:
    turns = row.get("turns")
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) for turn in turns):
        raise ForerunError(f"{path}, line {number}: field 'turns' must be a non-empty list of strings")
    return turns


def _ngrams(text: str) -> set[tuple[str, ...]]:
    """Runs of 13 words, lower case, punctuation dropped; a shorter text counts as one run."""
    words = re.findall(r"\w+", text.lower())
    count = max(1, len(words) - _NGRAM_WORDS + 1)
    return {tuple(words[start : start + _NGRAM_WORDS]) for start in range(count)}
