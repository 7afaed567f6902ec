"""Recording, replaying and comparing from the command line."""

import json
from pathlib import Path

import pytest

from tests.support.cli import forerun

RECORD = ["record", "run.jsonl", "--max-new-tokens", "8", "--ignore-stop-ids"]


@pytest.fixture
def recorded(made: Path, work: Path) -> list[str]:
    """Arguments that record two prompts with small models."""
    (work / "prompts.jsonl").write_text(
        '{"id": "a", "prompt": "One"}\n{"id": "b", "prompt": "Two"}\n', encoding="utf-8"
    )
    return [
        *RECORD, "--target", str(made / "target"), "--drafter", str(made / "drafter"), "--prompt-file", "prompts.jsonl"
    ]  # fmt: skip


def test_record_replay_compare(recorded: list[str], work: Path) -> None:
    """One story: record, refuse to overwrite, resume after a cut, replay, compare."""
    assert forerun(*recorded).code == 0
    whole = (work / "run.jsonl").read_text(encoding="utf-8")
    assert [json.loads(line).get("temperature") for line in whole.splitlines()] == [None, 0.0, 1.0, 0.0, 1.0]
    again = forerun(*recorded)
    assert again.code == 2 and "--resume" in again.err
    (work / "run.jsonl").write_text(whole[: len(whole) * 2 // 3], encoding="utf-8")
    cut = forerun(*["replay", "run.jsonl", "--horizon", "2"])
    assert cut.code == 2 and "--resume" in cut.err
    assert forerun(*[*recorded, "--resume"]).code == 0
    resumed = (work / "run.jsonl").read_text(encoding="utf-8").splitlines()
    for before, after in zip(whole.splitlines()[1:], resumed[1:], strict=True):
        assert json.loads(before)["token_ids"] == json.loads(after)["token_ids"]
    other = forerun(*[*recorded, "--resume", "--seed", "1"])
    assert other.code == 2 and "seed 0, not 1" in other.err
    found = forerun(*["replay", "run.jsonl", "--horizon", "2", "--horizon", "amtp", "--json"])
    assert found.code == 0
    result = json.loads(found.out)
    assert [(scene["world"], scene["regime"]) for scene in result["scenes"]] == [
        (f"temperature {temperature}", kind) for temperature in (0, 1) for kind in ("cached", "uncached")
    ]
    entries = {entry["policy"]: entry for entry in result["scenes"][0]["entries"]}
    assert {"2", "amtp", "clairvoyant"} <= set(entries) and result["recording"]["prompts"] == ["a", "b"]
    speeds = {name: entry["tokens_per_second"]["estimate"] for name, entry in entries.items()}
    assert speeds["clairvoyant"] == max(speeds.values())
    assert result["scenes"][0]["share_of"] == "per context (estimated)"
    assert entries["per context (estimated)"]["share"]["estimate"] == 1.0 and entries["2"]["mean_regret"] is not None
    few = forerun("compare", "features", "--recording", "run.jsonl", "--seeds", "1")
    assert few.code == 2 and "too few for a ladder" in few.err
    compared = forerun(
        "compare", "horizons", "--recording", "run.jsonl", "--costs", "cached", "--horizon", "2", "--seeds", "1",
        "--result", "out.json",
    )  # fmt: skip
    assert compared.code == 0 and "clairvoyant" in compared.out
    assert json.loads((work / "out.json").read_text(encoding="utf-8"))["format"] == "forerun-horizon-comparison-1"


def test_compare_simulated_worlds(work: Path) -> None:
    """The table names controllers and oracles; a second run of the same command takes its rows from the first."""
    command = [
        "compare", "horizons", "--world", "ar1", "--regime", "moe", "--horizon", "amtp", "--horizon", "3",
        "--seeds", "1", "--tokens", "1000", "--result", "out.json",
    ]  # fmt: skip
    first = forerun(*command)
    assert first.code == 0 and "per context" in first.out and "amtp" in first.out
    rows = (work / "out.json.rows").read_text(encoding="utf-8")
    assert forerun(*command).out == first.out and (work / "out.json.rows").read_text(encoding="utf-8") == rows


def test_compare_features(work: Path) -> None:
    """Every rung with its scores, its own speed, and the ratio to the fastest controller without features."""
    found = forerun(
        "compare", "features", "--world", "independent", "--regime", "large-batch", "--seeds", "1", "--tokens", "600",
        "--result", "out.json",
    )  # fmt: skip
    assert found.code == 0 and "F3" in found.out
    result = json.loads((work / "out.json").read_text(encoding="utf-8"))
    assert result["format"] == "forerun-feature-ladder-1"
    (scene,) = result["scenes"]
    assert [row["predictor"] for row in scene["predictors"]][:5] == ["F0", "F1", "F2", "F3", "F4"]
    ratios = {
        entry["policy"]: entry["ratio_to_best_without_features"]["estimate"]
        for entry in scene["entries"] if not entry["oracle"]
    }  # fmt: skip
    assert ratios[scene["best_without_features"]] == 1.0 and {"F0", "F1", "F2", "F3"} <= set(ratios)
    assert max(ratio for name, ratio in ratios.items() if name.startswith("windowed")) == 1.0
    assert "F4" not in ratios


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["compare", "horizons", "--world", "ar2"], "did you mean ar1"),
        (["compare", "horizons", "--regime", "mo"], "unknown cost regime"),
        (["compare", "horizons", "--horizon", "amtpp", "--world", "ar1"], "unknown horizon"),
        (["compare", "horizons", "--recording", "none.jsonl"], "no such recording"),
        (["compare", "horizons", "--recording", "none.jsonl", "--world", "ar1"], "leave --world"),
        (["compare", "horizons", "--costs", "cached"], "belong to a recording"),
        (["replay", "none.jsonl"], "no such recording"),
    ],
)
def test_wrong_use_says_what_to_change(work: Path, words: list[str], said: str) -> None:
    found = forerun(*words)
    assert found.code == 2 and said in found.err and "Traceback" not in found.err
