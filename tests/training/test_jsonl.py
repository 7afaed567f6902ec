"""Lines that a kill, an editor or a tool may leave behind."""

import json
from pathlib import Path

import pytest

from forerun.errors import ForerunError
from forerun.training.jsonl import append_jsonl, drop_torn_line, read_jsonl

NASTY = "line\u2028separator\u2029paragraph\u0085next\x0bvertical\x1cfile 한국어 \U0001f600 \r\n tab\t"


def test_unicode_line_separators_are_text(tmp_path: Path) -> None:
    """Catches splitlines(), which would break a row at U+2028, U+2029, U+0085, vertical tabs and file separators."""
    path = tmp_path / "rows.jsonl"
    append_jsonl(path, [{"text": NASTY}, {"text": "after"}])
    append_jsonl(path, [{"text": "a second write"}])
    assert read_jsonl(path) == [{"text": NASTY}, {"text": "after"}, {"text": "a second write"}]
    assert "\u2028separator\u2029paragraph\u0085next" in path.read_text(encoding="utf-8")  # they stand there unescaped


@pytest.mark.parametrize("cut", [1, 2, 7, 20])
def test_a_torn_last_line_is_cut_and_only_that(tmp_path: Path, cut: int) -> None:
    """Catches a resume that fails on, keeps, or glues the next row to what a kill in the middle of a write left."""
    path = tmp_path / "rows.jsonl"
    rows = [{"job": "a", "text": NASTY}, {"job": "b", "text": NASTY}]
    append_jsonl(path, rows)
    path.write_bytes(path.read_bytes()[:-cut])  # cut 20 ends inside a character
    drop_torn_line(path)
    assert read_jsonl(path) == rows[:1]
    append_jsonl(path, rows[1:])
    assert read_jsonl(path) == rows


def test_a_whole_file_and_a_single_torn_line(tmp_path: Path) -> None:
    """Catches a whole last line being cut, and an index of -1 where there is no line end at all."""
    path = tmp_path / "rows.jsonl"
    drop_torn_line(path)
    assert not path.exists()
    append_jsonl(path, [{"job": "a"}])
    drop_torn_line(path)
    assert read_jsonl(path) == [{"job": "a"}]
    path.write_text('{"job": "a', encoding="utf-8")
    drop_torn_line(path)
    assert path.read_bytes() == b""
    drop_torn_line(path)
    assert read_jsonl(path) == []


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"job": "b",}', "not valid JSON"),
        ("[1, 2]", "expected a JSON object, found list"),
        ('"text"', "expected a JSON object, found str"),
        ("null", "expected a JSON object, found NoneType"),
        ("NaN nonsense", "not valid JSON"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    """C50. Catches rows that are skipped in silence, and numbers that count rows instead of lines."""
    path = tmp_path / "rows.jsonl"
    path.write_text('{"job": "a"}\n\n' + line + '\n{"job": "c"}\n', encoding="utf-8")
    with pytest.raises(ForerunError, match=rf"rows\.jsonl, line 3: {complaint}"):
        read_jsonl(path)


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    """Catches a UnicodeDecodeError that reaches the user as a traceback."""
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"job": "a"}\n{"text": "\xff\xfe"}\n')
    with pytest.raises(ForerunError, match=r"rows\.jsonl.*UTF-8"):
        read_jsonl(path)


@pytest.mark.parametrize("folder", [False, True])
def test_no_file(tmp_path: Path, folder: bool) -> None:
    path = tmp_path / "rows.jsonl"
    if folder:
        path.mkdir()
    with pytest.raises(ForerunError, match=r"no such file: .*rows\.jsonl"):
        read_jsonl(path)


def test_rows_are_plain_json_lines(tmp_path: Path) -> None:
    """Catches a format that other tools cannot read: one JSON text for each line feed."""
    path = tmp_path / "rows.jsonl"
    rows = [{"text": "a\nb"}, {"text": "c"}]
    append_jsonl(path, rows)
    assert [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] == rows
