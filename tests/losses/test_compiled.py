"""``torch.compile(fullgraph=True)`` accepts every loss, forward and backward, and changes nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.losses import LOSSES

ROOT = Path(__file__).parents[2]


def compiled(backend: str, names: list[str]) -> list[str]:
    """Names of the losses that a fresh process compiled."""
    command = [sys.executable, "-m", "tests.support.compiled_losses", backend, *names]
    done = subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OMP_NUM_THREADS": "1"},
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def test_no_graph_breaks() -> None:
    """Catches a Python branch on a tensor's value: one loss with a backward of its own, and one with a block's axis."""
    names = ["tvp 0.5", "left_to_right"]
    assert compiled("eager", names) == names


@pytest.mark.slow
def test_every_loss_compiles_with_its_backward() -> None:
    """Catches a backward pass that only autograd's own tape can run."""
    assert compiled("aot_eager", list(LOSSES)) == list(LOSSES)
