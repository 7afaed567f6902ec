"""Every mistake is one line on stderr that says what to change, exit code 2, and nothing left behind."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from tests.support.cli import Finished, forerun, tree
from tests.support.writers import answer_row, write_jsonl


def assert_refused(finished: Finished, complaint: str) -> None:
    assert finished.code == 2, finished
    assert finished.out == ""
    assert re.fullmatch(r"forerun: [^\n]+\n", finished.err), finished.err
    assert re.search(complaint, finished.err), finished.err
    assert "Traceback" not in finished.err


GENERATE: list[tuple[list[str], str]] = [
    (["", "--drafter", "none"], "the prompt is empty"),
    ([" \n\t ", "--drafter", "none"], "the prompt is empty"),
    (["-", "--drafter", "none"], "the prompt is empty"),
    (["word " * 200, "--drafter", "none"], r"prompt has \d+ tokens and .* a context of 128; shorten it"),
    (["hi", "--drafter", "none", "--temperature", "-0.5"], "temperature"),
    (["hi", "--drafter", "none", "--temperature", "nan"], "temperature"),
    (["hi", "--drafter", "none", "--top-k", "0"], "top_k"),
    (["hi", "--drafter", "none", "--top-p", "1.5"], "top_p"),
    (["hi", "--drafter", "none", "--min-p", "-1"], "min_p"),
    (["hi", "--drafter", "none", "--typical-p", "0"], "typical_p is 0"),
    (["hi", "--drafter", "none", "--repetition-penalty", "0"], "repetition_penalty is 0"),
    (["hi", "--drafter", "none", "--presence-penalty", "nan"], "presence_penalty is nan"),
    (["hi", "--drafter", "none", "--frequency-penalty", "inf"], "frequency_penalty is inf"),
    (["hi", "--drafter", "none", "--min-new-tokens", "-1"], "min_new_tokens is -1"),
    (["hi", "--drafter", "none", "--logit-bias", "5"], "expected ID=VALUE .* got '5'"),
    (["hi", "--drafter", "none", "--logit-bias", "the=2"], "expected ID=VALUE .* got 'the=2'"),
    (["hi", "--drafter", "none", "--logit-bias", "300=2"], "logit_bias names token 300; the vocabulary ends at 299"),
    (["hi", "--drafter", "none", "--bad-word", " "], "a bad word is empty"),
    (["hi", "--drafter", "none", "--max-new-tokens", "0"], "max_new_tokens is 0"),
    (["hi", "--drafter", "none", "--stop", ""], "empty stop string"),
    (["hi", "--drafter", "none", "--seed", "-1"], "seed is -1"),
    (["hi", "--drafter", "none", "--dtype", "float16"], "unknown dtype 'float16'; choose one of"),
    (["hi", "--drafter", "none", "--horizon", "3"], "horizon 3 needs a drafter"),
    (["hi", "--drafter", "prompt-lookup", "--horizon", "17"], "horizon 17 is above the 16 tokens that prompt-lookup"),
    (["hi", "--drafter", "prompt-lookup", "--horizon", "-1"], "horizon is -1"),
    (["hi", "--drafter", "prompt-lookup", "--horizon=--5"], "unknown horizon '--5'; give a number of tokens, or"),
    (["hi", "--drafter", "prompt-lookup", "--horizon", "²"], "unknown horizon '²'; give a number of tokens, or"),
    (["hi", "--drafter", "prompt-lookup", "--horizon", "cascade"], "did you mean cascade-style"),
    (["hi", "--drafter", "prompt-lookup", "--horizon", "dspark-same-round"], "has looked at.* add --lossy"),
    (["hi"], "no drafter ships for .*; give --drafter"),
    (["hi", "--drafter", "nowhere"], "no drafter at nowhere; give a folder"),
    (["hi", "--drafter", "model:no such model"], "unknown model 'no such model'"),
]


@pytest.mark.parametrize(("arguments", "complaint"), GENERATE, ids=[complaint[:24] for _, complaint in GENERATE])
def test_generate_says_what_is_wrong(work: Path, target_folder: Path, arguments: list[str], complaint: str) -> None:
    assert_refused(forerun("generate", *arguments, "--target", target_folder), complaint)
    assert_refused(forerun("generate", *arguments, "--target", target_folder, "--json"), complaint)
    assert tree(work) == {}


@pytest.mark.parametrize("name", ["no such model", "./nowhere", "/nowhere/at/all"])
def test_an_unknown_model(work: Path, name: str) -> None:
    assert_refused(forerun("generate", "hi", "--target", name), rf"unknown model '{name}'")


def test_a_horizon_above_the_drafters_maximum(made: Path, target_folder: Path) -> None:
    finished = forerun("generate", "hi", "--target", target_folder, "--drafter", made / "drafter", "--horizon", "4")
    assert_refused(finished, "horizon 4 is above the 3 tokens that dspark can draft")


def test_a_drafter_made_for_another_tokenizer_names_the_first_id(made: Path) -> None:
    """Catches drafters that are loaded because the sizes fit: every draft would be another token than was meant."""
    finished = forerun("generate", "hi", "--target", made / "renamed", "--drafter", made / "drafter")
    assert_refused(finished, "made for another tokenizer: the first differing id is 270")
    finished = forerun("generate", "hi", "--target", made / "renamed", "--drafter", f"model:{made / 'small'}")
    assert_refused(finished, "has another tokenizer: id 270 is .* choose a pair that shares one tokenizer")
    finished = forerun("generate", "hi", "--target", made / "fewer", "--drafter", f"model:{made / 'small'}")
    assert_refused(finished, "has 300 tokens, .* has 299")


def test_a_draft_vocabulary_that_cannot_be_had(made: Path, target_folder: Path, work: Path) -> None:
    """Catches a choice that is silently empty, cut or ignored."""
    model = f"model:{made / 'small'}"
    (work / "empty.txt").write_text("", encoding="utf-8")
    (work / "rows.jsonl").write_text('{"ids": [1]}\n', encoding="utf-8")
    for drafter, word, complaint in (
        ("none", "40", "--draft-vocab prunes the head of a draft model; --drafter is none"),
        (model, "301", r"size 301 must lie in 1\.\.300"),
        (model, "nowhere.txt", "nowhere.txt cannot be read as text"),
        (model, "empty.txt:3", "empty.txt holds no tokens to count"),
        (model, "rows.jsonl", "rows.jsonl: a row has no list answer_ids"),
    ):
        finished = forerun("generate", "hi", "--target", target_folder, "--drafter", drafter, "--draft-vocab", word)
        assert_refused(finished, complaint)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-50])


def cut_header(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20])


def drop_tensor(path: Path) -> None:
    tensors = load_file(path)
    del tensors[sorted(name for name in tensors if "norm.weight" in name)[0]]
    save_file(tensors, path, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (truncate, "cannot be read|corrupt or truncated"),
        (cut_header, "cannot be read|corrupt or truncated"),
        (drop_tensor, r"missing keys?: .*norm\.weight|tensor .*norm\.weight is missing"),
        (Path.unlink, "cannot be read|the drafter's weights are missing"),
    ],
    ids=["truncated", "header", "missing key", "no weights"],
)
@pytest.mark.parametrize("kind", ["target", "drafter"])
def test_damaged_weights_are_named(
    work: Path, made: Path, kind: str, damage: Callable[[Path], None], complaint: str
) -> None:
    """Catches random numbers in the place of missing weights, and a library's traceback."""
    shutil.copytree(made / kind, work / kind)
    damage(work / kind / "model.safetensors")
    place = {"target": made / "target", "drafter": made / "drafter"} | {kind: work / kind}
    finished = forerun("generate", "hi", "--target", place["target"], "--drafter", place["drafter"])
    assert_refused(finished, complaint)


@pytest.mark.parametrize("kind", ["target", "drafter"])
@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff\xfe{}", b'{"model_type": 3}', b'{"architecture": "parrot"}'], ids=repr
)
def test_damaged_configurations_are_named(work: Path, made: Path, kind: str, content: bytes) -> None:
    shutil.copytree(made / kind, work / kind)
    (work / kind / "config.json").write_bytes(content)
    place = {"target": made / "target", "drafter": made / "drafter"} | {kind: work / kind}
    finished = forerun("generate", "hi", "--target", place["target"], "--drafter", place["drafter"])
    assert_refused(finished, str(work / kind))


def test_a_field_that_a_drafters_configuration_lacks_is_named(work: Path, made: Path) -> None:
    shutil.copytree(made / "drafter", work / "drafter")
    config = json.loads((made / "drafter" / "config.json").read_text(encoding="utf-8"))
    for change, complaint in (
        ({key: value for key, value in config.items() if key != "layer"}, r"config\.json: field layer"),
        (config | {"window": 4}, r"config\.json: field window"),
        (config | {"hidden_size": 64}, "hidden_size 64; .* has 32"),
    ):
        (work / "drafter" / "config.json").write_text(json.dumps(change), encoding="utf-8")
        assert_refused(forerun("generate", "hi", "--target", made / "target", "--drafter", work / "drafter"), complaint)


def test_a_folder_that_is_no_model(work: Path, target_folder: Path) -> None:
    (work / "empty").mkdir()
    assert_refused(forerun("generate", "hi", "--target", work / "empty"), "the folder has no config.json")
    finished = forerun("generate", "hi", "--target", target_folder, "--drafter", target_folder)
    assert_refused(finished, "unknown architecture None")


@pytest.mark.parametrize(
    "arguments",
    [
        ["generate", "hi", "--beam", "3"],
        ["generate"],
        ["generate", "hi", "--top-k", "three"],
        ["data", "regenerate", "prompts.jsonl"],
        ["train", "features"],
        ["data", "regenerate", "prompts.jsonl", "--output", "o", "--batch-size", "0"],
        ["evaluate"],
        ["data", "invent"],
        ["--verbose"],
    ],
    ids=" ".join,
)
def test_wrong_use_is_shown_with_the_way_to_help(work: Path, arguments: list[str]) -> None:
    """Usage errors are typer's: three lines, of which the last names the mistake."""
    finished = forerun(*arguments)
    assert finished.code == 2 and finished.out == ""
    assert "Usage: forerun" in finished.err and "Error: " in finished.err.strip().splitlines()[-1]
    assert tree(work) == {}


def regenerate(work: Path, target_folder: Path, *options: str | Path) -> Finished:
    row = {"id": "a", "domain": "d", "turns": ["hi"], "source": "s", "license": "MIT"}
    write_jsonl(work / "prompts.jsonl", [row])
    return forerun("data", "regenerate", work / "prompts.jsonl", "--target", target_folder, "--max-new-tokens", "8",
                   *options)  # fmt: skip


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--output", "out.jsonl", "--temperature", "-1"], "temperature"),
        (["--output", "out.jsonl", "--samples", "math"], "expected DOMAIN=N, got 'math'"),
        (["--output", "out.jsonl", "--samples", "math=²"], "expected DOMAIN=N"),
        (["--output", "out.jsonl", "--max-prompts", "=-1"], "expected DOMAIN=N"),
        (["--output", "out.jsonl", "--license", "GPL-3.0"], "no prompt left"),
        (["--output", "out.jsonl", "--held-out", "suite.jsonl"], "no such file: suite.jsonl"),
        (["--output", "out.jsonl", "--max-prompt-tokens", "2"], "no prompt is short enough: 2 tokens at most"),
        (["--output", "out.jsonl", "--max-new-tokens", "128"], "no prompt is short enough: 0 tokens at most"),
        (["--output", "out.jsonl", "--seed", "-3"], "seed"),
        (["--output", "."], r"\."),
        (["--output", "prompts.jsonl/out.jsonl"], r"prompts\.jsonl"),
        (["--output", "prompts.jsonl"], "was written with other settings"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_regenerate_says_what_is_wrong(work: Path, target_folder: Path, options: list[str], complaint: str) -> None:
    finished = regenerate(work, target_folder, *options)
    assert_refused(Finished(finished.code, finished.out, last_line(finished.err)), complaint)
    assert list(tree(work)) == ["prompts.jsonl"]


def last_line(text: str) -> str:
    """Without what was reported on the way (how many prompts were dropped)."""
    return text.splitlines(keepends=True)[-1]


@pytest.mark.parametrize("content", ["{", "[]", '{"id": "a"}', "\n\n", '{"turns": "hi"}'], ids=repr)
def test_bad_prompts_are_named(work: Path, target_folder: Path, content: str) -> None:
    (work / "bad.jsonl").write_text(content + "\n", encoding="utf-8")
    finished = forerun("data", "regenerate", "bad.jsonl", "--target", target_folder, "--output", "out.jsonl")
    assert_refused(finished, r"bad\.jsonl")
    assert list(tree(work)) == ["bad.jsonl"]


def test_prepare_and_train_name_what_is_missing(work: Path, target_folder: Path) -> None:
    options: list[str | Path] = ["--target", target_folder]
    assert_refused(
        forerun("data", "prepare", "a.jsonl", "--output", "f", *options), r"a\.jsonl\.history\.json is missing"
    )
    write_jsonl(work / "a.jsonl", [answer_row("p/0", [5, 6], [7, 8])])
    assert_refused(
        forerun("data", "prepare", "a.jsonl", "--output", "f", *options), r"a\.jsonl\.history\.json is missing"
    )
    arguments: list[str | Path] = ["train", "f", "--answers", "a.jsonl", "--output", "d", "--run", "r", *options]
    assert_refused(forerun(*arguments), "f: no captured features; run forerun data prepare first")
    assert_refused(forerun(*arguments, "--loss", "tpv"), "unknown loss 'tpv'; did you mean tv, tvp")
    assert_refused(
        forerun(*arguments, "--position-weights", "flat"), "position_weights is 'flat'; choose one of own, bound"
    )
    assert_refused(forerun(*arguments, "--learning-rate", "7"), "learning_rate is 7.0")
    assert_refused(forerun(*arguments, "--matmul-precision", "low"), "matmul_precision is 'low'")
    assert list(tree(work)) == ["a.jsonl"]


def test_demo_checks_its_paths_first(work: Path) -> None:
    """Catches a page that cannot be written once everything has been measured."""
    assert_refused(forerun("demo", "--quick", "--full"), "--quick and --full exclude each other")
    assert_refused(forerun("demo", "--page", "nowhere/page.html"), "the folder nowhere does not exist")
    assert_refused(forerun("demo", "--result", "nowhere/result.json"), "the folder nowhere does not exist")
    assert_refused(forerun("demo", "--page", "."), "it is a folder")
    assert tree(work) == {}
