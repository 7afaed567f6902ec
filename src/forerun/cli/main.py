"""Entry point: 0 done, 1 a check failed, 2 wrong use, with one line that says what to change."""

from __future__ import annotations

import sys
from typing import NoReturn

import typer

from forerun.cli.check import check_app
from forerun.cli.compare import compare_app
from forerun.cli.data import data_app
from forerun.cli.demo import demo
from forerun.cli.generate import generate
from forerun.cli.profile import profile
from forerun.cli.record import record
from forerun.cli.replay import replay
from forerun.cli.train import train
from forerun.errors import ForerunError

app = typer.Typer(
    name="forerun",
    help="Train speculative drafters and decode with them, exactly.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(check_app, name="check")
app.add_typer(compare_app, name="compare")
app.add_typer(data_app, name="data")
app.command()(demo)
app.command()(generate)
app.command()(profile)
app.command()(record)
app.command()(replay)
app.command()(train)


def main() -> None:
    """Run the command line."""
    try:
        app(prog_name="forerun")
    except ForerunError as error:
        _fail(str(error))
    except OSError as error:  # a file or folder that is not what was asked for, a full disk
        place = "" if error.filename is None else f"{error.filename}: "
        _fail(f"{place}{error.strerror or error}")


def _fail(message: str) -> NoReturn:
    """One line, whatever a library put into its message."""
    print(f"forerun: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)
