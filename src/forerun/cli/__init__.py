"""The command line: arguments and exit codes, nothing else."""

from forerun.cli.main import main

__all__ = ["main"]
