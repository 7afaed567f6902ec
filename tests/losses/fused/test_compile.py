"""`torch.compile(fullgraph=True)`: the compiler sees one operator, whatever the number of chunks."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager"])
def test_full_graph(backend: str) -> None:
    """Catches anything in the call that the compiler cannot follow, forward or backward."""
    finished = subprocess.run(
        [sys.executable, "-m", "tests.support.compiled_fused", backend],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.stdout == "equal\n", finished.stderr
