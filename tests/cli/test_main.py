"""The command as a whole: help, exit codes, interruption, and what importing the package costs."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import forerun as package
from forerun.cli import generate as generate_command
from tests.support.cli import forerun

VERBS = [
    [],
    ["check"],
    ["check", "exactness"],
    ["data"],
    ["data", "regenerate"],
    ["data", "prepare"],
    ["demo"],
    ["generate"],
    ["train"],
]


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_every_verb_explains_itself(verb: list[str]) -> None:
    finished = forerun(*verb, "--help")
    assert finished.code == 0 and finished.err == ""
    assert finished.out.startswith(f"Usage: {' '.join(['forerun', *verb])}")
    options = [line for line in finished.out.splitlines() if line.strip().startswith("--")]
    assert all(len(line.split()) > 1 for line in options)


@pytest.mark.parametrize("verb", [[], ["data"]], ids=" ".join)
def test_no_verb_is_a_question_for_help(verb: list[str]) -> None:
    finished = forerun(*verb)
    assert finished.code == 2 and "Usage: forerun" in finished.out + finished.err


def test_an_interruption_is_not_an_error_report(monkeypatch: pytest.MonkeyPatch, target_folder: Path) -> None:
    """Catches a traceback, and an exit code that says all went well, when somebody presses Ctrl-C."""

    def interrupted(*_args: object, **_kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(generate_command, "load_target", interrupted)
    finished = forerun("generate", "hi", "--target", target_folder)
    assert finished.code == 130 and finished.out == ""
    assert finished.err.strip() in ("", "Interrupted.")


def test_an_error_of_the_system_is_one_line(monkeypatch: pytest.MonkeyPatch, target_folder: Path) -> None:
    """Catches a full disk or a lost folder that ends in a traceback."""

    def full(*_args: object, **_kwargs: object) -> None:
        raise OSError(28, "No space left on device", "/somewhere/file")

    monkeypatch.setattr(generate_command, "load_target", full)
    finished = forerun("generate", "hi", "--target", target_folder)
    assert (finished.code, finished.err) == (2, "forerun: /somewhere/file: No space left on device\n")


def test_a_mistake_of_ours_is_not_hidden(monkeypatch: pytest.MonkeyPatch, target_folder: Path) -> None:
    """Catches a net so wide that a bug looks like the user's fault."""

    def broken(*_args: object, **_kwargs: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(generate_command, "load_target", broken)
    with pytest.raises(ZeroDivisionError):
        forerun("generate", "hi", "--target", target_folder)


def fresh(code: str, folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A new interpreter that knows the package, in an empty folder, without a model hub."""
    source = str(Path(package.__file__).parents[1])
    settings = {**os.environ, "PYTHONPATH": source, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning:forerun", "-c", code, *map(str, arguments)],
        cwd=folder, env=settings, capture_output=True, text=True, check=False,
    )  # fmt: skip


MAIN = "from forerun.cli import main; main()"


@pytest.mark.slow
def test_streams_of_a_real_process(tmp_path: Path, target_folder: Path) -> None:
    """Catches notices of libraries on either stream, which only a fresh process shows."""
    good = fresh(MAIN, tmp_path, "generate", "hi", "--target", target_folder, "--drafter", "none", "--json")
    assert good.returncode == 0 and good.stderr == "" and good.stdout.count("\n") == 1
    unknown = fresh(MAIN, tmp_path, "generate", "hi", "--target", "somebody/nothing")
    assert unknown.returncode == 2 and unknown.stdout == ""
    assert unknown.stderr.startswith("forerun: unknown model 'somebody/nothing'") and unknown.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_horizons_need_no_torch(tmp_path: Path) -> None:
    """Catches an import that makes a serving engine's scheduler load torch."""
    heavy = "[name for name in ('torch', 'transformers') if name in sys.modules]"
    finished = fresh(f"import sys, forerun, forerun.horizons; print({heavy})", tmp_path)
    assert (finished.stdout, finished.stderr) == ("[]\n", "")


@pytest.mark.parametrize("name", package.__all__)
def test_public_names_are_there(name: str) -> None:
    """Catches a name that stands in the list and nowhere else."""
    assert vars(package).get(name, package.__getattr__(name)) is package.__getattr__(name)
    module = importlib.import_module("forerun")
    assert module.__getattr__(name) is not None


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="module 'forerun' has no attribute 'nothing'"):
        package.__getattr__("nothing")
    with pytest.raises(ImportError):
        exec("from forerun import nothing")
