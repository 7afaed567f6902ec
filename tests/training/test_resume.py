"""C42. A run that is killed and resumed is the run that was never interrupted, bit for bit."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, final

import pytest
import torch
from rich.progress import Progress

from forerun.drafters import DraftVocabulary
from forerun.errors import ForerunError
from forerun.losses import TVP
from forerun.training import TrainResult
from forerun.training.jsonl import read_jsonl
from tests.support.networks import CONFIGS, tiny_config
from tests.support.targets import successor_target
from tests.support.tokenizers import text_tokenizer
from tests.support.training import SMALL, cyclic_rows, cyclic_target, run_training


@final
class Killed(Progress):
    """A bar that interrupts the run after ``steps`` updates."""

    def __init__(self, steps: int) -> None:
        super().__init__(disable=True)
        self.steps = steps

    def update(self, *args: Any, **kwargs: Any) -> None:
        self.steps -= 1
        if self.steps == 0:
            raise KeyboardInterrupt


def assert_same(first: TrainResult, second: TrainResult) -> None:
    weights = second.network.state_dict()
    for name, value in first.network.state_dict().items():
        assert torch.equal(value, weights[name]), name
    assert first.validation == second.validation
    assert first.anchors == second.anchors


def interrupt(folder: Path, steps: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_training(folder, SMALL, progress=Killed(steps))


@pytest.mark.parametrize("kind", [kind for kind in CONFIGS if "," not in kind and kind != "dspark"])
def test_every_architecture_goes_on_bit_for_bit(tmp_path: Path, kind: str) -> None:
    """Catches parts of a network that no state holds. DSpark has the tests below."""
    shape = tiny_config(cyclic_target(), kind=kind)
    rows = cyclic_rows(12, captured=shape.captured_layers)
    config = replace(SMALL, steps=4, save_every=2)
    whole = run_training(tmp_path / "whole", config, shape=shape, rows=rows)
    with pytest.raises(KeyboardInterrupt):
        run_training(tmp_path / "parts", config, shape=shape, rows=rows, progress=Killed(3))
    assert_same(run_training(tmp_path / "parts", config, shape=shape, rows=rows, resume=True), whole)


@pytest.mark.parametrize("killed_after", [3, 5, 8])
def test_a_killed_run_ends_in_the_same_weights(tmp_path: Path, killed_after: int) -> None:
    """Catches moments, learning rate, beta, rows or anchors that start afresh, and log lines that stand twice.

    States are saved every five updates: a kill after three loses all, after five nothing, after eight three updates.
    """
    whole = run_training(tmp_path / "whole", SMALL)
    interrupt(tmp_path / "parts", killed_after)
    assert len(read_jsonl(tmp_path / "parts" / "log.jsonl")) == killed_after
    assert_same(run_training(tmp_path / "parts", SMALL, resume=True), whole)
    log = read_jsonl(tmp_path / "parts" / "log.jsonl")
    assert log == read_jsonl(tmp_path / "whole" / "log.jsonl")
    assert [row["step"] for row in log] == list(range(10))


def test_a_finished_run_can_be_resumed_to_write_its_drafter_again(tmp_path: Path) -> None:
    first = run_training(tmp_path, SMALL)
    log = (tmp_path / "log.jsonl").read_bytes()
    assert_same(run_training(tmp_path, SMALL, resume=True), first)
    assert (tmp_path / "log.jsonl").read_bytes() == log


def test_resume_without_a_state_starts_at_the_beginning(tmp_path: Path) -> None:
    """One command for both, so that a job that is restarted by a scheduler need not know; old log lines go."""
    interrupt(tmp_path, 3)
    assert_same(run_training(tmp_path, SMALL, resume=True), run_training(tmp_path / "other", SMALL))


def test_a_run_is_not_overwritten(tmp_path: Path) -> None:
    """Catches hours of training lost to a command that was meant for another folder."""
    run_training(tmp_path, SMALL)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ForerunError, match="holds a run already; pass --resume"):
        run_training(tmp_path, SMALL)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    "config",
    [
        replace(SMALL, steps=11),
        replace(SMALL, seed=1),
        replace(SMALL, learning_rate=0.02),
        replace(SMALL, rows_per_step=2),
        replace(SMALL, position_weights="exp"),
        replace(SMALL, objective=TVP(beta=0.25)),
        replace(SMALL, objective=TVP(schedule="reversed")),
        replace(SMALL, objective=TVP(fraction=0.7)),
    ],
    ids=["steps", "seed", "learning rate", "rows", "weights", "beta", "schedule", "fraction"],
)
def test_other_settings_are_refused(tmp_path: Path, config: Any) -> None:
    """Catches a schedule that jumps in the middle of a run."""
    interrupt(tmp_path, 6)
    before = (tmp_path / "state.pt").read_bytes()
    with pytest.raises(ForerunError, match="holds a run with other settings"):
        run_training(tmp_path, config, resume=True)
    assert (tmp_path / "state.pt").read_bytes() == before
    run_training(tmp_path, replace(SMALL, save_every=3), resume=True)  # how often it is saved may change


def other_target(folder: Path) -> None:
    reversed_cycle = {token: (token - 1) % 16 for token in range(16)}
    other = successor_target(reversed_cycle, vocab_size=16, tokenizer=text_tokenizer(16))
    run_training(folder, SMALL, resume=True, target=other, rows=cyclic_rows())


@pytest.mark.parametrize(
    ("named", "resume"),
    [
        ("data", lambda folder: run_training(folder, SMALL, resume=True, rows=cyclic_rows(25))),
        ("data", lambda folder: run_training(folder, SMALL, resume=True, rows=cyclic_rows()[::-1])),
        (
            "draft vocabulary",
            lambda folder: run_training(
                folder, SMALL, resume=True, vocabulary=DraftVocabulary(torch.arange(1, 16), 16),
                shape=tiny_config(cyclic_target(), draft_vocab_size=15),
            ),
        ),
        (
            "drafter shape",
            lambda folder: run_training(folder, SMALL, resume=True, shape=tiny_config(cyclic_target(), block=3)),
        ),
        ("target", other_target),
    ],
)  # fmt: skip
def test_another_run_is_refused(tmp_path: Path, named: str, resume: Callable[[Path], object]) -> None:
    """Catches a run that goes on with other rows or another target as if nothing had happened."""
    start = DraftVocabulary(torch.arange(15), 16) if named == "draft vocabulary" else None
    shape = tiny_config(cyclic_target(), draft_vocab_size=15) if start else None
    with pytest.raises(KeyboardInterrupt):
        run_training(tmp_path, SMALL, vocabulary=start, shape=shape, progress=Killed(6))
    with pytest.raises(ForerunError, match=f"holds a run with other {named}"):
        resume(tmp_path)


def test_a_kill_while_saving_leaves_the_old_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches states that are written in place: the run would be lost exactly when it was being saved."""
    whole = run_training(tmp_path / "whole", SMALL)
    run_folder = tmp_path / "parts"
    interrupt(run_folder, 6)
    old = (run_folder / "state.pt").read_bytes()

    def killed_in_the_middle(_state: object, path: Path) -> None:
        path.write_bytes(b"half a state")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(torch, "save", killed_in_the_middle)
        run_training(run_folder, SMALL, resume=True)
    assert (run_folder / "state.pt").read_bytes() == old
    assert_same(run_training(run_folder, SMALL, resume=True), whole)


def test_a_torn_or_missing_log_does_not_stop_a_resume(tmp_path: Path) -> None:
    """Catches a resume that dies of the half line that the kill left."""
    whole = run_training(tmp_path / "whole", SMALL)
    torn = tmp_path / "torn"
    interrupt(torn, 7)
    with (torn / "log.jsonl").open("a", encoding="utf-8") as log:
        log.write('{"step": 7, "gradi')
    assert_same(run_training(torn, SMALL, resume=True), whole)
    assert read_jsonl(torn / "log.jsonl") == read_jsonl(tmp_path / "whole" / "log.jsonl")
    missing = tmp_path / "missing"
    interrupt(missing, 7)
    (missing / "log.jsonl").unlink()
    assert_same(run_training(missing, SMALL, resume=True), whole)
    assert [row["step"] for row in read_jsonl(missing / "log.jsonl")] == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("keep", [0, 10, 2000])
def test_a_damaged_state_is_named(tmp_path: Path, keep: int) -> None:
    interrupt(tmp_path, 6)
    content = (tmp_path / "state.pt").read_bytes()
    (tmp_path / "state.pt").write_bytes(content[:keep])
    with pytest.raises(ForerunError, match=r"state\.pt: corrupt or truncated; delete the file to start again"):
        run_training(tmp_path, SMALL, resume=True)


def test_a_state_of_another_kind_is_named(tmp_path: Path) -> None:
    """Catches a KeyError from a file that torch can read but that is no state of this version."""
    for index, content in enumerate([{"step": 3}, [1, 2], {"identity": "settings"}]):
        folder = tmp_path / str(index)
        folder.mkdir()
        torch.save(content, folder / "state.pt")
        with pytest.raises(ForerunError, match=r"corrupt or truncated|other settings"):
            run_training(folder, SMALL, resume=True)
