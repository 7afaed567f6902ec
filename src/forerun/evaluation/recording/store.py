"""Recordings on disk: JSON lines, written answer by answer, read whole or refused."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, final

from pydantic import BaseModel, ValidationError

from forerun.errors import ForerunError
from forerun.evaluation.recording.format import RecordedAnswer, RecordingHeader

_Line = TypeVar("_Line", bound=BaseModel)


@final
@dataclass(frozen=True, slots=True)
class Recording:
    """A header and its answers, perhaps not all of them yet."""

    header: RecordingHeader
    answers: tuple[RecordedAnswer, ...]


def read_recording(path: Path, *, whole: bool = True) -> Recording:
    """Read a recording.

    Args:
        path: of the file.
        whole: refuse one that is not finished.

    Raises:
        ForerunError: no such file, a line of another format, answers out of order, or an unfinished recording.
    """
    if not path.is_file():
        raise ForerunError(f"no such recording: {path}")
    text = path.read_text(encoding="utf-8")
    lines = [line for line in text.split("\n") if line]
    if not lines:
        raise ForerunError(f"{path} is empty; record again")
    if not text.endswith("\n"):
        raise ForerunError(f"{path}, line {len(lines)} was cut off; finish the recording with forerun record --resume")
    header = _parsed(RecordingHeader, lines[0], path, 1)
    answers = tuple(_parsed(RecordedAnswer, line, path, number) for number, line in enumerate(lines[1:], start=2))
    for expected, answer in enumerate(answers):
        if answer.number != expected:
            raise ForerunError(f"{path}, line {expected + 2}: answer {answer.number} where {expected} belongs")
    if whole and len(answers) != header.num_answers:
        raise ForerunError(
            f"{path} holds {len(answers)} of {header.num_answers} answers; finish it with forerun record --resume"
        )
    return Recording(header, answers)


def start_recording(path: Path, header: RecordingHeader) -> None:
    """Begin a file with its header.

    Raises:
        ForerunError: the file exists.
    """
    if path.exists():
        raise ForerunError(f"{path} exists; add --resume to go on with it, or name another file")
    append_line(path, header)


def resume_recording(path: Path, identity: Mapping[str, object]) -> int:
    """Make an interrupted file ready for more answers; says how many it holds.

    A line that a kill cut off is dropped.

    Args:
        path: of the file.
        identity: fields of the header that have to be the same.

    Raises:
        ForerunError: naming the first field that differs, or as ``read_recording``.
    """
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        with path.open("r+b") as sink:
            sink.truncate(whole)
    found = read_recording(path, whole=False)
    before = found.header.model_dump()
    for field, wanted in identity.items():
        if before[field] != wanted:
            raise ForerunError(f"{path} was recorded with {field} {before[field]}, not {wanted}; name another file")
    return len(found.answers)


def append_line(path: Path, line: BaseModel) -> None:
    """Add one line and wait until it is on disk."""
    with path.open("a", encoding="utf-8") as sink:
        sink.write(line.model_dump_json() + "\n")
        sink.flush()
        os.fsync(sink.fileno())


def _parsed(kind: type[_Line], line: str, path: Path, number: int) -> _Line:
    try:
        return kind.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the line"
        raise ForerunError(f"{path}, line {number}: {field}: {first['msg']}") from error
