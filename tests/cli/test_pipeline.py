"""From prompts to a drafter that decodes, through the command line alone."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import Finished, forerun, tree
from tests.support.writers import write_jsonl

TRAIN = [
    "--steps", "4", "--rows-per-step", "4", "--blocks-per-row", "4", "--set", "num_layers=1", "--set", "block_size=3",
    "--set", "markov_rank=4", "--set", "draft_vocab_size=100", "--loss", "tvp-from-half",
]  # fmt: skip


def write_prompts(work: Path) -> Path:
    """Enough prompts for one in fifty to be held out."""
    rows = [
        {"id": f"p{index}", "domain": "chat", "turns": [f"why {index}"], "source": "tests", "license": "MIT"}
        for index in range(150)
    ]
    rows[7]["license"] = "GPL-3.0"
    return write_jsonl(work / "prompts.jsonl", rows)


def one_line(finished: Finished) -> dict[str, Any]:
    assert finished.code == 0, finished.err
    assert finished.out.count("\n") == 1
    line: dict[str, Any] = json.loads(finished.out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    return line


def regenerate(work: Path, target: Path, *options: str) -> Finished:
    return forerun(
        "data", "regenerate", write_prompts(work), "--output", work / "answers.jsonl", "--target", target,
        "--max-new-tokens", "10", "--json", *options,
    )  # fmt: skip


def prepare(work: Path, target: Path, *options: str) -> Finished:
    return forerun(
        "data", "prepare", work / "answers.jsonl", "--output", work / "features", "--target", target, "--json",
        *options,
    )  # fmt: skip


def train(work: Path, target: Path, *options: str) -> Finished:
    return forerun(
        "train", work / "features", f"--answers={work / 'answers.jsonl'}", "--output", work / "drafter",
        "--run", work / "run", "--target", target, "--json", *TRAIN, *options,
    )  # fmt: skip


def test_from_prompts_to_text(work: Path, target_folder: Path) -> None:
    """Catches steps that do not fit together, and a provenance that cannot be followed on another machine."""
    written = regenerate(work, target_folder)
    assert "dropped 1: license GPL-3.0" in written.err
    report = one_line(written)
    assert report["rows"] == report["written_now"] == 149
    again = one_line(regenerate(work, target_folder, "--batch-size", "7"))
    assert again == report | {"written_now": 0}

    prepared = one_line(prepare(work, target_folder))
    assert prepared["rows"] <= 149
    before = tree(work / "features")
    assert one_line(prepare(work, target_folder)) == prepared
    assert tree(work / "features") == before

    trained = one_line(train(work, target_folder))
    assert 1.0 <= trained["predicted_tau"] <= 4.0 and trained["output"] == str(work / "drafter")

    options: list[str | Path] = ["--target", target_folder, "--max-new-tokens", "20", "--temperature", "0", "--json"]
    drafted = one_line(forerun("generate", "why", "--drafter", work / "drafter", "--horizon", "3", *options))
    plain = one_line(forerun("generate", "why", "--drafter", "none", *options))
    assert drafted["token_ids"] == plain["token_ids"] and drafted["drafted"] > 0

    provenance = json.loads((work / "drafter" / "provenance.json").read_text(encoding="utf-8"))
    commands = provenance["commands"]
    assert [command.split()[1] for command in commands] == ["data", "data", "train"]
    assert commands[0].startswith("forerun data regenerate prompts.jsonl --output answers.jsonl --target target")
    assert str(work) not in json.dumps(provenance)
    assert all("/" not in command for command in commands)
    assert provenance["data_licenses"] == {"MIT": 149}
    assert "beta 0.5" in provenance["loss"]
    left = {path.name for path in work.iterdir()}
    assert left == {
        "prompts.jsonl", "answers.jsonl", "answers.jsonl.history.json", "features", "features.history.json", "run",
        "drafter",
    }  # fmt: skip


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory, target_folder: Path) -> Path:
    """A folder in which training can start."""
    folder = tmp_path_factory.mktemp("features")
    one_line(regenerate(folder, target_folder))
    one_line(prepare(folder, target_folder))
    return folder


def test_training_is_resumed_and_not_overwritten(work: Path, features: Path, target_folder: Path) -> None:
    shutil.copytree(features, work, dirs_exist_ok=True)
    first = one_line(train(work, target_folder))
    files = tree(work)
    refused = train(work, target_folder)
    assert refused.code == 2 and "pass --resume" in refused.err and refused.err.count("\n") == 1
    assert tree(work) == files
    resumed = one_line(train(work, target_folder, "--resume"))
    assert {key: value for key, value in resumed.items() if key != "seconds"} == {
        key: value for key, value in first.items() if key != "seconds"
    }
    after = tree(work)
    name = "drafter/model.safetensors"
    assert after[name] == files[name]
    commands = json.loads((work / "drafter" / "provenance.json").read_text(encoding="utf-8"))["commands"]
    assert "--resume" not in commands[2]
    other = train(work, target_folder, "--resume", "--seed", "1")
    assert other.code == 2 and "other settings" in other.err


def test_a_failed_training_leaves_no_drafter(work: Path, features: Path, made: Path, target_folder: Path) -> None:
    """Catches a half-written folder that a later command would try to load."""
    shutil.copytree(features, work, dirs_exist_ok=True)
    files = tree(work)
    for options, complaint in (
        (["--target", str(made / "small")], "captured from another target"),
        (["--set", "block_size=40"], "none of .* held-out answers is longer than a block"),
        (["--output", str(made / "target")], "exists and is no drafter"),
        (["--set", "draft_vocab_size=0"], "--set draft_vocab_size: Input should be greater than 0"),
        (["--drafter", "parrot"], "unknown drafter 'parrot'"),
        (["--seed", "-1"], "seed"),
    ):
        finished = train(work, target_folder, *options)
        assert finished.code == 2 and finished.out == "", options
        assert re.search(complaint, finished.err), finished.err
        assert tree(work) == files, options
    (work / "features" / "shard-00001.safetensors").unlink()
    assert "rows; run forerun data prepare again" in train(work, target_folder).err
