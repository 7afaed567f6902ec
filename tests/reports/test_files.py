"""Reading and writing: whole or not at all."""

import os
from pathlib import Path

import pytest

from forerun.errors import ForerunError
from forerun.reports import read_result, render_page, write_page, write_result
from tests.reports.sample import demo_result


def test_a_written_result_reads_back_equal(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_result(demo_result(), path)
    assert read_result(path) == demo_result()


def test_writing_replaces_the_page_and_leaves_no_other_file(tmp_path: Path) -> None:
    """Would catch a temporary file left beside the page, or an old page appended to."""
    path = tmp_path / "page.html"
    path.write_text("old")
    write_page(demo_result(), path)
    assert path.read_text(encoding="utf-8") == render_page(demo_result())
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]


def test_a_write_that_fails_keeps_the_old_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch writing in place: after a full disk the old page must still be there, and nothing half-written."""

    def full_disk(source: str, target: Path) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "page.html"
    path.write_text("old")
    monkeypatch.setattr(os, "replace", full_disk)
    with pytest.raises(ForerunError, match="No space left on device"):
        write_page(demo_result(), path)
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]


def test_an_interrupted_write_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a clean-up that handles errors but not Ctrl-C."""

    def interrupt(source: str, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_page(demo_result(), tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_unusable_paths_are_named(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere" / "page.html"
    with pytest.raises(ForerunError, match=r"cannot write .*nowhere/page\.html: No such file or directory"):
        write_page(demo_result(), nowhere)
    with pytest.raises(ForerunError, match=r"cannot read the result file .*absent"):
        read_result(tmp_path / "absent")
    other = tmp_path / "other.json"
    other.write_text("[]")
    with pytest.raises(ForerunError, match=r"other\.json: not a result"):
        read_result(other)
    other.write_bytes(b"\xff\xfe")
    with pytest.raises(ForerunError, match=r"cannot read .*other\.json"):
        read_result(other)
