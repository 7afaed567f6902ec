"""Results and pages on disk: read whole or refused, written whole or not at all."""

import os
import tempfile
from pathlib import Path

from pydantic import ValidationError

from forerun.errors import ForerunError
from forerun.reports.schema import DemoResult


def parse_result(text: str) -> DemoResult:
    """Read a result from JSON.

    Args:
        text: a JSON object with the fields of `DemoResult`.

    Raises:
        ForerunError: naming the first field that is missing, unknown or wrong.
    """
    try:
        return DemoResult.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ForerunError(f"not a result of this version of forerun: {field}: {first['msg']}") from error


def read_result(path: Path) -> DemoResult:
    """Read a result file written by `write_result`.

    Raises:
        ForerunError: when the file cannot be read or is no result; the message names the file.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ForerunError(f"cannot read the result file {path}: {error}") from error
    try:
        return parse_result(text)
    except ForerunError as error:
        raise ForerunError(f"{path}: {error}") from error


def write_result(result: DemoResult, path: Path) -> None:
    """Write a result as JSON, so that `read_result` gives it back equal.

    Raises:
        ForerunError: when the file cannot be written.
    """
    write_text(result.model_dump_json(indent=1) + "\n", path)


def write_text(text: str, path: Path) -> None:
    """Write a text file whole or not at all: into a temporary neighbour first, then renamed over `path`.

    Raises:
        ForerunError: when the folder does not exist or cannot be written to; nothing is left behind.
    """
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
            os.chmod(temporary, 0o644)  # mkstemp makes private files; a report is meant to be shown
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise ForerunError(f"cannot write {path}: {error.strerror}") from error
