"""``forerun demo`` with a tiny pair in the place of the embedded one."""

import json
from pathlib import Path

import pytest
import torch

from forerun.cli import demo as demo_command
from forerun.drafters import save_drafter
from forerun.evaluation import DemoConfig
from forerun.models import TransformersTarget
from forerun.reports import read_result
from tests.support.cli import forerun, tree
from tests.support.networks import provenance, random_network, tiny_config, whole
from tests.support.speed import without_shape_checks
from tests.support.writers import chat_target


@pytest.fixture
def drafter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A drafter folder; the command finds its tiny target and measures little."""
    target: TransformersTarget = chat_target(dtype=torch.float32, max_positions=2000)
    folder = tmp_path / "drafter"
    save_drafter(folder, random_network(tiny_config(target)), whole(target), target, provenance(target))
    config = DemoConfig(prompts_per_task=1, max_new_tokens=6, pilot_tokens=16, quick=True)
    monkeypatch.setattr(demo_command, "load_target", lambda: target)
    monkeypatch.setattr(demo_command, "demo_config", lambda **_sizes: config)
    return folder


def test_table_page_and_result(work: Path, drafter: Path) -> None:
    """Catches a table without its arms, a page that is not written, and a result that cannot be read again."""
    with without_shape_checks():
        finished = forerun("demo", "--drafter", drafter, "--page", work / "page.html", "--result", work / "result.json")
    assert finished.code == 0 and finished.err == ""
    text = " ".join(finished.out.split())
    for word in ("chat-0", "dspark", "plain", "fixed", "AMTP", "math", "code", "chat", "tau", "page.html"):
        assert word in text, word
    result = read_result(work / "result.json")
    assert result.quick and result.command.startswith("forerun demo --drafter drafter --page page.html")
    assert (work / "page.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert {path.name for path in work.iterdir()} == {"drafter", "page.html", "result.json"}


def test_one_line_for_machines(work: Path, drafter: Path) -> None:
    with without_shape_checks():
        finished = forerun("demo", "--quick", "--drafter", drafter, "--page", work / "page.html", "--json")
    assert finished.code == 0 and finished.out.count("\n") == 1
    line = json.loads(finished.out)
    assert line["format"] == "forerun-demo-1" and line["quick"]
    assert "AMTP" in finished.err  # the table is for people


def test_a_damaged_drafter_stops_the_demo_before_it_starts(work: Path, drafter: Path) -> None:
    weights = drafter / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    before = tree(work)
    finished = forerun("demo", "--quick", "--drafter", drafter)
    assert finished.code == 2 and finished.out == "" and finished.err.count("\n") == 1
    assert "corrupt or truncated" in finished.err
    assert tree(work) == before
