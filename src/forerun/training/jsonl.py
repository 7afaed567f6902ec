"""Append-only JSON-lines files that survive a kill at any byte."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from forerun.errors import ForerunError


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Every object of a file.

    Raises:
        ForerunError: the file is missing or not UTF-8, or a line is not a JSON object (its number is named).
    """
    return [row for _, row in numbered_jsonl(path)]


def numbered_jsonl(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """Every object of a file with the number of its line, empty lines counted; raises as ``read_jsonl``."""
    if not path.is_file():
        raise ForerunError(f"no such file: {path}")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ForerunError(f"{path} is not UTF-8 text (byte {error.start}: {error.reason}); convert it") from error
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):  # not splitlines: U+2028 is text
        if not line:
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ForerunError(
                f"{path}, line {number}: not valid JSON ({error.msg}); fix or delete the line"
            ) from error
        if not isinstance(row, dict):
            raise ForerunError(f"{path}, line {number}: expected a JSON object, found {type(row).__name__}")
        rows.append((number, row))
    return rows


def append_jsonl(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Add rows in one write and wait until they are on disk."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    with path.open("a", encoding="utf-8") as sink:
        sink.write(text)
        sink.flush()
        os.fsync(sink.fileno())


def drop_torn_line(path: Path) -> None:
    """Cut an unfinished last line off, which is what a kill in the middle of a write leaves."""
    if not path.is_file():
        return
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        with path.open("r+b") as sink:
            sink.truncate(content.rfind(b"\n") + 1)
