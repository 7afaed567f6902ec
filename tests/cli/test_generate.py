"""``forerun generate`` on a saved target: the same text however it is drafted, on the right stream."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from forerun.distributions import SamplingParams
from forerun.engine import generate
from forerun.models import TransformersTarget
from tests.support.cli import forerun

PROMPT = "the cat sat"


def answer(target_folder: Path, *options: str | Path, prompt: str = PROMPT, stdin: str = "") -> dict[str, Any]:
    """The one line of --json."""
    finished = forerun("generate", prompt, "--target", target_folder, "--json", *options, stdin=stdin)
    assert finished.code == 0, finished.err
    assert finished.out.endswith("\n") and finished.out.count("\n") == 1
    line: dict[str, Any] = json.loads(finished.out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    return line


def test_plain_decoding_is_what_the_engine_says(target_folder: Path, target: TransformersTarget) -> None:
    """Catches options that do not reach the engine."""
    options = ["--drafter", "none", "--max-new-tokens", "20", "--seed", "3", "--temperature", "0.7", "--top-k", "9"]
    found = answer(target_folder, *options, "--top-p", "0.9", "--min-p", "0.01", "--stop", "~never~")
    sampling = SamplingParams(temperature=0.7, top_k=9, top_p=0.9, min_p=0.01)
    expected = generate(target, PROMPT, sampling=sampling, max_new_tokens=20, seed=3)
    assert found["token_ids"] == expected.token_ids and found["text"] == expected.text
    assert found["finish"] == expected.finish and found["exact"] is True
    assert (found["rounds"], found["drafted"], found["tau"]) == (19, 0, 1.0)


@pytest.mark.parametrize("kind", ["none", "prompt-lookup", "model", "dspark"])
@pytest.mark.parametrize("horizon", ["amtp", "0", "3"])
def test_greedy_text_is_the_same_however_it_is_drafted(
    made: Path, target_folder: Path, kind: str, horizon: str
) -> None:
    """Exactness from the outside; catches a drafter word that stands for nothing."""
    if kind == "none" and horizon == "3":
        return  # an error of its own
    word = {"model": f"model:{made / 'small'}", "dspark": str(made / "drafter")}.get(kind, kind)
    found = answer(
        target_folder, "--drafter", word, "--horizon", horizon, "--temperature", "0", "--max-new-tokens", "24"
    )
    plain = answer(target_folder, "--drafter", "none", "--temperature", "0", "--max-new-tokens", "24")
    assert found["token_ids"] == plain["token_ids"] and found["text"] == plain["text"]
    assert found["emitted"] == len(found["token_ids"]) - 1 == found["rounds"] + found["accepted"]
    assert (found["drafted"] > 0) == (horizon == "3") or horizon == "amtp"


def test_the_target_drafts_for_itself_without_a_mistake(target_folder: Path) -> None:
    found = answer(
        target_folder, "--drafter", f"model:{target_folder}", "--horizon", "4", "--max-new-tokens", "21",
        "--temperature", "0",
    )  # fmt: skip
    assert found["accepted"] == found["drafted"] == 16 and found["tau"] == 5.0


def test_text_streams_to_stdout_and_numbers_to_stderr(target_folder: Path) -> None:
    """Catches a summary inside the text of a pipe."""
    options = ["--drafter", "prompt-lookup", "--max-new-tokens", "12"]
    finished = forerun("generate", PROMPT, "--target", target_folder, *options)
    assert finished.code == 0
    assert finished.out == answer(target_folder, *options)["text"] + "\n"
    summary = " ".join(finished.err.split())
    assert re.search(
        r"\d+ tokens, \d+ rounds, tau \d\.\d\d, [\d.]+ tokens/s \(prefill excluded\), ended by \w+", summary
    )


def test_a_prompt_from_standard_input(target_folder: Path) -> None:
    options = ["--drafter", "none", "--max-new-tokens", "8"]
    assert answer(target_folder, *options, prompt="-", stdin=PROMPT) == {
        **answer(target_folder, *options),
        "tokens_per_second": pytest.approx(0, abs=1e9),
    }


def test_raw_text_has_no_template(target_folder: Path, target: TransformersTarget) -> None:
    """Catches a flag that is read but not used."""
    found = answer(target_folder, "--raw", "--drafter", "none", "--max-new-tokens", "8", "--temperature", "0")
    expected = generate(target, PROMPT, raw=True, sampling=SamplingParams(temperature=0.0), max_new_tokens=8)
    assert found["token_ids"] == expected.token_ids
    chat = answer(target_folder, "--drafter", "none", "--max-new-tokens", "8", "--temperature", "0")
    assert chat["token_ids"] != found["token_ids"]


def test_a_stop_text_ends_the_answer(target_folder: Path) -> None:
    options = ["--drafter", "none", "--max-new-tokens", "40", "--seed", "1"]
    whole = answer(target_folder, *options)["text"]
    stop = whole[len(whole) // 2 : len(whole) // 2 + 3]
    cut = answer(target_folder, *options, "--stop", stop, "--stop", "~never~")
    assert cut["text"] == whole[: whole.find(stop)] and cut["finish"] == "stop string"


def test_seeds_repeat_and_differ(target_folder: Path) -> None:
    texts = [
        answer(target_folder, "--drafter", "prompt-lookup", "--horizon", "2", "--max-new-tokens", "16", "--seed", seed)
        for seed in ("5", "5", "6")
    ]
    assert texts[0]["token_ids"] == texts[1]["token_ids"] != texts[2]["token_ids"]


def test_without_packed_weights_the_greedy_text_is_the_same(target_folder: Path) -> None:
    options = ["--drafter", "none", "--temperature", "0", "--max-new-tokens", "16"]
    packed, plain = answer(target_folder, *options), answer(target_folder, *options, "--no-optimize")
    assert packed["token_ids"] == plain["token_ids"]
