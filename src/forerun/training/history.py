"""Which commands led to a file, kept in a small file beside it, so that a drafter can name its whole ancestry."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from forerun.errors import ForerunError
from forerun.training.whole_file import write_whole


def portable_command(arguments: list[str]) -> str:
    """A command as another machine could type it: paths are cut to their last part."""
    return shlex.join(["forerun", *(_portable(word) for word in arguments[1:])])


def _portable(word: str) -> str:
    option, separator, value = word.rpartition("=") if word.startswith("--") else ("", "", word)
    if value.startswith(("/", "./", "../", "~/")) or ("/" in value and Path(value).exists()):
        value = Path(value).name
    return option + separator + value


def write_history(path: Path, command: str, earlier: list[str], inputs: dict[str, str]) -> None:
    """Write ``<path>.history.json``.

    Args:
        path: the file that ``command`` makes.
        command: from ``portable_command``.
        earlier: commands that made its inputs.
        inputs: file names and SHA-256 of what it read.
    """
    record = {"commands": [*earlier, command], "inputs": inputs}
    write_whole(_beside(path), json.dumps(record, indent=2) + "\n")


def read_history(path: Path) -> dict[str, Any]:
    """The record beside a file.

    Raises:
        ForerunError: there is none, or it is damaged.
    """
    if not _beside(path).is_file():
        raise ForerunError(f"{_beside(path)} is missing; it is written with {path.name} and says how that was made")
    try:
        record = json.loads(_beside(path).read_bytes())
    except ValueError as error:  # neither JSON nor text
        raise ForerunError(
            f"{_beside(path)} is damaged ({error}); run the command that made {path.name} again"
        ) from error
    if not isinstance(record, dict) or not isinstance(record.get("commands"), list):
        raise ForerunError(f"{_beside(path)} names no commands; run the command that made {path.name} again")
    return record


def _beside(path: Path) -> Path:
    return path.with_name(path.name + ".history.json")
