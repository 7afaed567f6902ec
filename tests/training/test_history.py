"""The commands that a drafter's provenance repeats."""

import json
import os
import shlex
from pathlib import Path

import pytest

from forerun.errors import ForerunError
from forerun.training import portable_command, read_history, write_history


def test_no_absolute_path_survives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches home folders in published files: of paths that exist, that do not yet, and behind an equals sign."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    words = [
        "/opt/tools/bin/forerun",
        "data",
        "regenerate",
        str(tmp_path / "here"),
        "here/../here",
        "--output",
        "/nowhere/at all/answers.jsonl",
        "--held-out=/nowhere/suite.jsonl",
        f"--held-out={tmp_path}/here",
        "../elsewhere/run",
        "~/runs/first",
        "--samples",
        "math=2",
        "--target",
        "owner/model",
        "--seed=3",
    ]
    command = portable_command(words)
    assert shlex.split(command) == [
        "forerun", "data", "regenerate", "here", "here", "--output", "answers.jsonl", "--held-out=suite.jsonl",
        "--held-out=here", "run", "first", "--samples", "math=2", "--target", "owner/model", "--seed=3",
    ]  # fmt: skip
    assert str(tmp_path) not in command and "nowhere" not in command


def test_words_with_spaces_stay_one_word() -> None:
    """Catches a plain join, which a shell would split differently."""
    assert portable_command(["x", "train", "a b", "it's"]) == shlex.join(["forerun", "train", "a b", "it's"])


def test_history_is_given_back_with_what_came_before(tmp_path: Path) -> None:
    """Catches a second step that forgets the first one's command."""
    answers, features = tmp_path / "answers.jsonl", tmp_path / "deep" / "features"
    write_history(answers, "forerun data regenerate", [], {"prompts.jsonl": "ab" * 32})
    first = read_history(answers)
    write_history(features, "forerun data prepare", first["commands"], {"answers.jsonl": "cd" * 32})
    assert read_history(features) == {
        "commands": ["forerun data regenerate", "forerun data prepare"],
        "inputs": {"answers.jsonl": "cd" * 32},
    }
    assert json.loads((tmp_path / "answers.jsonl.history.json").read_text(encoding="utf-8")) == first


def test_missing_history_is_named(tmp_path: Path) -> None:
    with pytest.raises(ForerunError, match=r"answers\.jsonl\.history\.json is missing"):
        read_history(tmp_path / "answers.jsonl")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}"])
def test_a_damaged_history_is_named(tmp_path: Path, text: str) -> None:
    """Catches a traceback, or a provenance without its commands, after a kill in the middle of the write."""
    (tmp_path / "answers.jsonl.history.json").write_text(text, encoding="utf-8")
    with pytest.raises(ForerunError, match=r"answers\.jsonl\.history\.json"):
        read_history(tmp_path / "answers.jsonl")


def test_a_kill_while_writing_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches files written in place: a resume would find half of them."""
    answers = tmp_path / "answers.jsonl"
    write_history(answers, "first", [], {})

    def killed(*_paths: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(os, "replace", killed)
        write_history(answers, "second", [], {})
    assert read_history(answers)["commands"] == ["first"]
    write_history(answers, "third", [], {})
    assert [path.name for path in tmp_path.iterdir()] == ["answers.jsonl.history.json"]
