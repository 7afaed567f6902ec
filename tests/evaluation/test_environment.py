"""Where and with what something was measured: true, or not said."""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from forerun import environment


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=tests", "-c", "user.email=tests@example.invalid", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The module believes that it lies in an empty folder."""
    shutil.copy(environment.__file__, tmp_path / "environment.py")
    monkeypatch.setattr(environment, "__file__", str(tmp_path / "environment.py"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    return tmp_path


def test_no_checkout_has_no_commit(elsewhere: Path) -> None:
    """Catches a complaint of git in the place of a commit."""
    assert environment.source_commit() is None


def test_a_checkout_has_its_commit_and_says_when_it_was_changed(elsewhere: Path) -> None:
    git(elsewhere, "init", "--quiet")
    git(elsewhere, "add", "environment.py")
    git(elsewhere, "commit", "--quiet", "-m", "first")
    git(elsewhere, "tag", "v1")  # a tag does not stand for a commit
    commit = git(elsewhere, "rev-parse", "HEAD")[:12]
    assert environment.source_commit() == commit
    (elsewhere / "environment.py").write_text("# changed\n", encoding="utf-8")
    assert environment.source_commit() == f"{commit}+"


def test_somebody_elses_checkout_is_not_ours(elsewhere: Path) -> None:
    """Catches the commit of the user's own project, inside which the package was installed."""
    (elsewhere / "their.py").write_text("theirs\n", encoding="utf-8")
    git(elsewhere, "init", "--quiet")
    git(elsewhere, "add", "their.py")
    git(elsewhere, "commit", "--quiet", "-m", "theirs")
    assert environment.source_commit() is None


def test_a_machine_without_git_has_no_commit(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a measurement that fails at its end because a program is not there."""
    monkeypatch.setenv("PATH", str(elsewhere))
    assert environment.source_commit() is None


def test_the_machine_has_a_name_and_cores() -> None:
    assert environment.cpu_name().strip()
    assert 1 <= environment.num_cores() <= (os.cpu_count() or 1)


def test_versions_of_what_shapes_numbers() -> None:
    versions = environment.library_versions()
    assert set(versions) == {"python", "forerun", "torch", "transformers", "tokenizers", "safetensors", "numpy"}
    assert all(versions.values())
    assert versions["torch"][0].isdigit() and versions["python"].count(".") == 2


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has mallopt")
def test_glibc_takes_the_memory_options() -> None:
    """Catches options that glibc refuses (in a process of its own: they stay)."""
    script = "from forerun import environment; print(environment.keep_freed_memory())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
