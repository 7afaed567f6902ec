"""The README's numbers are the committed result's, to the letter."""

from __future__ import annotations

from pathlib import Path

from forerun.reports import markdown_table, read_result

ROOT = Path(__file__).parents[2]


def test_the_measured_table_is_that_of_the_committed_result() -> None:
    """Catches a number in the README that no run measured, or that was rounded by hand."""
    result = read_result(ROOT / "results" / "demo.json")
    assert markdown_table(result) in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_committed_result_says_where_it_was_measured() -> None:
    """Catches a result from a run that cannot be named: no commit, or a path of the machine in its command."""
    result = read_result(ROOT / "results" / "demo.json")
    assert result.commit is not None
    assert not any(word.startswith("/") for word in result.command.split())
