"""``forerun generate`` on a saved target: the same text however it is drafted, on the right stream."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from forerun.distributions import SamplingParams
from forerun.engine import generate
from forerun.models import TransformersTarget
from tests.support.cli import forerun

PROMPT = "the cat sat"
FLOAT32 = 1e-5
"""Rows of a batch are summed in another order than alone."""


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


@pytest.mark.parametrize("kind", ["none", "prompt-lookup", "suffix-lookup", "model", "dspark"])
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


def test_a_draft_model_may_know_a_part_of_the_vocabulary(made: Path, target_folder: Path, tmp_path: Path) -> None:
    """Catches an option that is read and not used, and a map that is not told; the greedy text stays the same."""
    (tmp_path / "words.txt").write_text("the cat sat on the mat", encoding="utf-8")
    (tmp_path / "answers.jsonl").write_text('{"answer_ids": [7, 7, 9]}\n{"answer_ids": [7, 11]}\n', encoding="utf-8")
    options = ["--horizon", "3", "--temperature", "0", "--max-new-tokens", "16", "--target", str(target_folder)]
    plain = answer(target_folder, "--drafter", "none", "--temperature", "0", "--max-new-tokens", "16")
    for word, told in (
        (
            str(tmp_path / "words.txt"),
            r"draft vocabulary: \d+ of 300 tokens, 100\.00 % of words\.txt, map [0-9a-f]{12}",
        ),
        (f"{tmp_path / 'answers.jsonl'}:2", r"2 of 300 tokens, 60\.00 % of answers\.jsonl"),  # 7 and the stop id
        ("40", r"40 of 300 tokens, the lowest ids"),
    ):
        finished = forerun(
            "generate", PROMPT, "--drafter", f"model:{made / 'small'}", "--draft-vocab", word, "--json", *options
        )
        assert finished.code == 0 and re.search(told, " ".join(finished.err.split())), finished.err
        found = json.loads(finished.out)
        assert found["token_ids"] == plain["token_ids"] and found["drafted"] > 0


def test_rounds_beyond_the_drafters_positions_are_told(made: Path, target_folder: Path) -> None:
    """C31 from the outside."""
    options = ["--horizon", "3", "--temperature", "0", "--max-new-tokens", "40", "--target", str(target_folder)]
    word = f"model:{made / 'short'}"
    finished = forerun("generate", PROMPT, "--raw", "--drafter", word, *options)
    found = json.loads(forerun("generate", PROMPT, "--raw", "--drafter", word, "--json", *options).out)
    assert found["rounds_beyond_drafter"] == found["rounds_without_drafts"] > 10
    told = f"{found['rounds_beyond_drafter']} rounds without drafts beyond the drafter's last position"
    assert told in " ".join(finished.err.split())


def test_a_policy_by_name(target_folder: Path) -> None:
    """Catches a name that does not reach the engine: a flat law ends every draft of SVIP behind its first token."""
    given = ("--drafter", f"model:{target_folder}", "--temperature", "0", "--max-new-tokens", "12")
    found = answer(target_folder, *given, "--horizon", "svip")
    assert found["accepted"] == found["drafted"] == found["emitted"] - found["rounds"]
    assert found["token_ids"] == answer(target_folder, *given, "--horizon", "0")["token_ids"]
    assert found["drafted"] < answer(target_folder, *given, "--horizon", "llama-cpp")["drafted"]


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


def test_every_sampling_option_reaches_the_engine(target_folder: Path, target: TransformersTarget) -> None:
    """Catches options that are shown and not used; each is made to change the answer by itself."""
    plain = answer(target_folder, "--drafter", "none", "--max-new-tokens", "12", "--seed", "3", "--temperature", "0.6")
    first = plain["token_ids"][0]
    options: dict[str, tuple[list[str], dict[str, Any]]] = {
        "bias": (
            ["--logit-bias", f"{first}=-inf", "--logit-bias", "9=1.5"],
            {"logit_bias": {first: -math.inf, 9: 1.5}},
        ),
        "repetition": (["--repetition-penalty", "4"], {"repetition_penalty": 4.0}),
        "presence": (["--presence-penalty", "2"], {"presence_penalty": 2.0}),
        "frequency": (["--frequency-penalty", "2.5"], {"frequency_penalty": 2.5}),
        "typical": (["--typical-p", "0.2"], {"typical_p": 0.2}),
    }
    for name, (words, settings) in options.items():
        found = answer(
            target_folder, "--drafter", "none", "--max-new-tokens", "12", "--seed", "3", "--temperature", "0.6", *words
        )
        sampling = SamplingParams(temperature=0.6, **settings)
        assert found["token_ids"] == generate(target, PROMPT, sampling=sampling, max_new_tokens=12, seed=3).token_ids, (
            name
        )
        assert found["token_ids"] != plain["token_ids"], name


def test_a_bad_word_is_not_said(target_folder: Path, target: TransformersTarget) -> None:
    """Both spellings are forbidden: inside a text and after a space."""
    options = ["--drafter", "none", "--max-new-tokens", "30", "--seed", "2"]
    plain = answer(target_folder, *options)["text"]
    word = next(word for word in plain.split() if word.isascii() and word.isalnum())
    found = answer(target_folder, *options, "--bad-word", word, "--bad-word", f" {word}")
    spellings = [target.tokenizer.encode_inner(text) for text in (word, f" {word}")]
    sampling = SamplingParams(bad_words=spellings)
    assert found["token_ids"] == generate(target, PROMPT, sampling=sampling, max_new_tokens=30, seed=2).token_ids
    assert found["token_ids"] != answer(target_folder, *options)["token_ids"]


def test_the_answer_is_long_enough_before_a_stop(target_folder: Path, target: TransformersTarget) -> None:
    """A bias makes the first token a stop id; the least length holds it off."""
    stop_id = target.stop_ids[0]
    options = ["--drafter", "prompt-lookup", "--temperature", "0", "--logit-bias", f"{stop_id}=1000"]
    assert answer(target_folder, *options)["token_ids"] == [stop_id]
    found = answer(target_folder, *options, "--min-new-tokens", "5", "--horizon", "3")["token_ids"]
    assert len(found) == 6 and found.index(stop_id) == 5


@pytest.mark.parametrize(
    ("options", "exact"),
    [
        (["--rule", "block"], True),
        (["--rule", "agreement"], True),
        (["--rule", "greedy", "--temperature", "0"], True),
        (["--rule", "typical", "--lossy"], False),
        (["--rule", "token-level", "--lossy"], True),
    ],
    ids=lambda options: " ".join(options) if isinstance(options, list) else None,
)
def test_results_say_whether_they_are_exact(target_folder: Path, options: list[str], exact: bool) -> None:
    """Catches a rule that does not reach the engine, and a lossy result that says nothing."""
    found = answer(target_folder, "--drafter", "prompt-lookup", "--horizon", "2", "--max-new-tokens", "8", *options)
    assert found["exact"] is exact
    assert len(found["token_ids"]) <= 8


def test_a_lossy_answer_says_so_to_people(target_folder: Path) -> None:
    """The line under the text names the rule; under an exact answer there is no such remark."""
    common = ("generate", PROMPT, "--target", target_folder, "--drafter", "none", "--max-new-tokens", "4")
    assert "not exact: rule lenient" in forerun(*common, "--rule", "lenient", "--lossy").err
    assert "not exact" not in forerun(*common).err
    control = ("--drafter", "prompt-lookup", "--horizon", "sampled-probability-cut", "--lossy")
    assert "horizon sampled-probability-cut" in forerun(*common, *control).err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rule", "typical"], "rule typical changes what the target would write; add --lossy"),
        (["--rule", "lenient"], "add --lossy"),
        (["--rule", "blok"], "unknown rule 'blok'; did you mean block?"),
        (["--rule", "greedy", "--temperature", "1"], "for temperature 0 only"),
    ],
)
def test_rules_that_cannot_be_meant_are_refused(target_folder: Path, options: list[str], message: str) -> None:
    """One line and exit code 2; a lossy rule never runs by its name alone."""
    finished = forerun("generate", PROMPT, "--target", target_folder, "--drafter", "none", *options)
    assert finished.code == 2
    assert message in finished.err and finished.err.count("\n") == 1


def test_several_prompts_are_answered_together_each_as_alone(target_folder: Path, target: TransformersTarget) -> None:
    """Catches answers in the wrong order, and a batch with other random numbers than single requests have."""
    options = ["--drafter", "none", "--max-new-tokens", "9", "--seed", "4", "--num-return-sequences", "2"]
    finished = forerun("generate", PROMPT, "dogs", "--target", target_folder, "--json", *options, "--logprobs", "2")
    assert finished.code == 0, finished.err
    lines = [json.loads(line) for line in finished.out.splitlines()]
    assert len(lines) == 4
    for number, prompt in enumerate([PROMPT, "dogs"]):
        alone = generate(target, prompt, max_new_tokens=9, seed=4, request=number, logprobs=2)
        first, second = lines[2 * number : 2 * number + 2]
        assert first["token_ids"] == alone.token_ids != second["token_ids"]
        assert alone.logprobs is not None
        found = [each["logprob"] for each in first["logprobs"]]
        assert found == pytest.approx([each.logprob for each in alone.logprobs], abs=FLOAT32)
    shown = forerun("generate", PROMPT, "dogs", "--target", target_folder, *options)
    assert shown.code == 0, shown.err
    places = [shown.out.index(line["text"]) for line in lines]
    assert places == sorted(places)
    assert shown.out.startswith(f"[1] {PROMPT}\n")


def test_log_probabilities_without_a_place_to_go_are_refused(target_folder: Path) -> None:
    finished = forerun("generate", PROMPT, "--target", target_folder, "--logprobs", "2")
    assert finished.code == 2
    assert "--logprobs are part of the JSON line; add --json" in finished.err
