"""Which commands led to a file, kept in a small file beside it, so that a drafter can name its whole ancestry."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from forerun.errors import ForerunError


def portable_command(arguments: list[str]) -> str:
    """A command as another machine could type it: paths are cut to their last part."""
    words = []
    for index, word in enumerate(arguments):
        if index == 0:
            words.append("forerun")
        elif word.startswith(("/", "./", "../", "~/")) or ("/" in word and Path(word).exists()):
            words.append(Path(word).name)
        else:
            words.append(word)
    return shlex.join(words)


def write_history(path: Path, command: str, earlier: list[str], inputs: dict[str, str]) -> None:
    """Write ``<path>.history.json``.

    Args:
        path: the file that ``command`` makes.
        command: from ``portable_command``.
        earlier: commands that made its inputs.
        inputs: file names and SHA-256 of what it read.
    """
    record = {"commands": [*earlier, command], "inputs": inputs}
    _beside(path).parent.mkdir(parents=True, exist_ok=True)
    _beside(path).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def read_history(path: Path) -> dict[str, Any]:
    """The record beside a file.

    Raises:
        ForerunError: there is none.
    """
    if not _beside(path).is_file():
        raise ForerunError(f"{_beside(path)} is missing; it is written with {path.name} and says how that was made")
    record: dict[str, Any] = json.loads(_beside(path).read_text(encoding="utf-8"))
    return record


def _beside(path: Path) -> Path:
    return path.with_name(path.name + ".history.json")
