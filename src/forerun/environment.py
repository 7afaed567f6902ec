"""Where and with what something was measured or made; goes into every result and provenance file."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

_LIBRARIES = ("forerun", "torch", "transformers", "tokenizers", "safetensors", "numpy")


def cpu_name() -> str:
    """The processor's own name, as far as the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine() or "unknown processor"


def num_cores() -> int:
    """Logical processors this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def library_versions() -> dict[str, str]:
    """Versions of Python and of the libraries that shape numbers; ``not installed`` where there is none."""
    versions = {"python": platform.python_version()}
    for library in _LIBRARIES:
        try:
            versions[library] = metadata.version(library)
        except metadata.PackageNotFoundError:  # a source tree that is on the path without being installed
            versions[library] = "not installed"
    return versions


def source_commit() -> str | None:
    """Commit of the checkout that this package runs from, ``+`` when it was changed since; ``None`` outside one.

    An installed package may lie inside somebody else's checkout (a virtual environment in a project); its commit says
    nothing about this code, so this file has to be tracked there.
    """
    if _git("ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None
    return _git("describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+")


def keep_freed_memory() -> bool:
    """Let the C library keep freed memory of this process for its next requests; says whether it could.

    Laws, hidden states and logits are tensors of some megabytes that live for a moment. The C library gives each of
    them back to the system and asks for it again, and the system fills every page with zeros: on virtual machines that
    costs more than the arithmetic (a softmax of 8 rows over 49,152 tokens in float64: 8 to 9 ms of processor time
    against 2). The process then holds up to a gigabyte of freed memory more. Only glibc has these options.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all(bool(mallopt(option, value)) for option, value in _MALLOC_OPTIONS.items())


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's <malloc.h>
_MALLOC_OPTIONS = {_MMAP_THRESHOLD: 1 << 30, _TRIM_THRESHOLD: 1 << 30}  # bytes


def _git(*arguments: str) -> str | None:
    try:
        finished = subprocess.run(
            ["git", *arguments], cwd=Path(__file__).resolve().parent, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:  # no git on this machine
        return None
    return finished.stdout.strip() or None if finished.returncode == 0 else None
