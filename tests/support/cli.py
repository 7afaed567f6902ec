"""The command line, run in this process the way the console script runs it."""

import io
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from forerun.cli import main


@dataclass(frozen=True)
class Finished:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str


def forerun(*arguments: str | Path, stdin: str = "") -> Finished:
    """``forerun ARGUMENTS``; exceptions other than an exit come through, as a traceback would."""
    out, err = io.StringIO(), io.StringIO()
    code = 0
    words = ["/somewhere/bin/forerun", *map(str, arguments)]
    with (
        patch.object(sys, "argv", words),
        patch.object(sys, "stdin", io.StringIO(stdin)),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as exit:
            code = exit.code if isinstance(exit.code, int) else int(exit.code is not None)
    return Finished(code, out.getvalue(), err.getvalue())


def tree(folder: Path, *, without: Sequence[str] = ()) -> dict[str, bytes | None]:
    """Every file and folder below, hidden ones too, with contents: to see that nothing was left or changed."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
        if path.name not in without
    }
