"""``forerun check exactness`` on saved pairs: text, JSON and exit codes."""

import json
import re
from pathlib import Path

import pytest

from forerun.cli import check as check_command
from forerun.models import TransformersTarget
from tests.support.cli import forerun
from tests.support.speed import without_shape_checks
from tests.support.writers import write_jsonl
from tests.support.wrong import AcceptEverything

QUICK = ["--max-new-tokens", "6", "--samples", "40", "--horizons", "1,3"]


@pytest.fixture
def own(work: Path) -> Path:
    """Two prompts of one's own."""
    return write_jsonl(work / "own.jsonl", [{"id": "cat", "prompt": "the cat sat"}, {"prompt": "rain"}])


def options(made: Path, own: Path) -> list[str | Path]:
    return ["--target", made / "target", "--drafter", made / "drafter", "--prompt-file", own, *QUICK]


def test_a_good_pair_passes_in_words(made: Path, own: Path) -> None:
    """Catches a check that is left out, and a bar or a warning where nobody watches."""
    with without_shape_checks():
        finished = forerun("check", "exactness", *options(made, own))
    assert finished.code == 0 and finished.err == "", finished
    assert finished.out.splitlines()[-1] == "Every check passed."
    lines = [line for line in finished.out.splitlines() if line.startswith("  ")]
    assert len(lines) == 2 * 2 + 2 * 2 + 1 and all(line.startswith("  ok   ") for line in lines)
    assert lines[0].startswith("  ok   cat, horizon 1: identical, 6 tokens (")
    assert lines[3].startswith("  ok   line 2, horizon 3: identical")
    assert "rule token-level" in finished.out and "p = " in lines[-1]


def test_one_line_for_machines(made: Path, own: Path) -> None:
    with without_shape_checks():
        finished = forerun("check", "exactness", *options(made, own), "--json", "--rule", "block", "--seed", "4")
    assert finished.code == 0 and finished.out.count("\n") == 1 and finished.err == ""
    line = json.loads(finished.out)
    assert (line["format"], line["rule"], line["exact"], line["passed"]) == ("forerun-exactness-1", "block", True, True)
    assert line["command"].startswith(
        "forerun check exactness --target target --drafter drafter --prompt-file own.jsonl"
    )
    assert (line["sampling"]["seed"], line["sampling"]["num_answers"], line["sampling"]["horizons"]) == (4, 40, [1, 3])
    assert {run["prompt"] for run in line["greedy"]} == {"cat", "line 2"}


def test_a_failed_check_is_exit_code_one(made: Path, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a failure that a script would take for success, and one that looks like wrong use."""
    monkeypatch.setattr(check_command, "rule_named", lambda _name, *, lossy: AcceptEverything())
    with without_shape_checks():
        finished = forerun("check", "exactness", *options(made, own))
        machine = forerun("check", "exactness", *options(made, own), "--json")
    assert finished.code == machine.code == 1
    assert "  FAIL cat, horizon 3: real difference: token " in finished.out
    assert finished.out.splitlines()[-1] == "A check FAILED: decoding with this pair is not exact."
    assert json.loads(machine.out)["passed"] is False


def test_shipped_prompts_take_turns_among_tasks(
    made: Path, target: TransformersTarget, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches three prompts of one kind, and a number that is not looked at."""
    seen: list[str] = []

    def stop(_target: object, _drafter: object, prompts: dict[str, list[int]], *_: object) -> None:
        seen.extend(prompts)
        raise KeyboardInterrupt

    monkeypatch.setattr(check_command, "_run", stop)
    for number, expected in (("2", ["math-1", "code-1"]), ("4", ["math-1", "code-1", "chat-1", "math-2"])):
        seen.clear()
        forerun("check", "exactness", "--target", made / "target", "--drafter", "prompt-lookup", "--prompts", number)
        assert seen == expected


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--drafter", "none"], "without a drafter there is nothing to check"),
        (["--drafter", "prompt-lookup", "--rule", "typical"], "rule .* is lossy"),
        (["--drafter", "prompt-lookup", "--rule", "blok"], "unknown rule 'blok'; did you mean block"),
        (["--drafter", "prompt-lookup", "--horizons", "1;4"], "horizons is '1;4'"),
        (["--drafter", "prompt-lookup", "--horizons", "17"], "horizon is 17; prompt-lookup can draft 1 to 16"),
        (["--drafter", "prompt-lookup", "--max-new-tokens", "3"], "a pass of 8 tokens needs answers of 9"),
        (["--drafter", "prompt-lookup", "--prompts", "0"], "prompts is 0; 24 are shipped"),
        (["--drafter", "prompt-lookup", "--prompts", "2", "--prompt-file", "own.jsonl"], "choose one"),
        (["--drafter", "prompt-lookup", "--prompt-file", "nothing.jsonl"], "no such file: nothing.jsonl"),
        (["--drafter", "prompt-lookup", "--prompt-file", "bad.jsonl"], r"bad\.jsonl, line 2: no prompt"),
        (["--drafter", "prompt-lookup", "--prompt-file", "twice.jsonl"], r"twice\.jsonl, line 2: id 'a' stands"),
        (["--drafter", "prompt-lookup", "--prompt-file", "empty.jsonl"], r"empty\.jsonl holds no prompts"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_wrong_use_is_exit_code_two(work: Path, target_folder: Path, arguments: list[str], complaint: str) -> None:
    write_jsonl(work / "bad.jsonl", [{"prompt": "hi"}, {"prompt": " "}])
    write_jsonl(work / "twice.jsonl", [{"id": "a", "prompt": "hi"}, {"id": "a", "prompt": "ho"}])
    (work / "empty.jsonl").write_text("\n", encoding="utf-8")
    finished = forerun("check", "exactness", "--target", target_folder, *arguments)
    assert finished.code == 2 and finished.out == "" and finished.err.count("\n") == 1, finished
    assert finished.err.startswith("forerun: ")
    assert re.search(complaint, finished.err), finished.err
