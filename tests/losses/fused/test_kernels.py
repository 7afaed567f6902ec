"""Runs the checks of the Triton kernel in a process whose functions are not wrapped by annotation checks."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from forerun.errors import ForerunError
from forerun.losses.fused import Divergence, fused_values
from tests.support.fused import problem

ROOT = Path(__file__).parents[3]


@pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed (pip install forerun[gpu])"
)
@pytest.mark.slow
def test_kernels_in_the_interpreter() -> None:
    """Catches whatever `kernel_checks` says it catches."""
    finished = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-W",
            "ignore::RuntimeWarning",  # of numpy: both branches of a choice are computed
            "-o",
            "addopts=--import-mode=importlib",
            "tests/losses/fused/kernel_checks.py",
        ],
        cwd=ROOT,
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout
    assert " passed" in finished.stdout


def test_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    given = problem(3)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ForerunError, match=r"forerun\[gpu\]"):
        fused_values(given.draft, given.target, Divergence(total_variation=1.0), backend="triton")
