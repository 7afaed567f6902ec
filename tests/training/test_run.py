"""From captured features to a drafter folder that says where it comes from."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from forerun.drafters import DrafterConfig, NetworkDrafter, load_network_drafter, read_provenance
from forerun.errors import ForerunError
from forerun.models import TransformersTarget
from forerun.training import FeatureConfig, TrainConfig, TrainResult, capture_features, train_drafter, write_history
from forerun.training.features import file_sha256, read_features
from tests.support.networks import tiny_config
from tests.support.training import SMALL, VOCAB, cyclic_target
from tests.support.writers import answer_row, chat_target, no_bars, write_jsonl

ROWS = 24


def prepare(folder: Path, *, layers: tuple[int, ...] = (0, 1)) -> None:
    """Answers of the cyclic target, their features, and the history of both."""
    texts = [[(place + 5 * index) % VOCAB for place in range(14)] for index in range(ROWS)]
    rows = [answer_row(f"p{index}/0", text[:4], text[4:]) for index, text in enumerate(texts)]
    rows[3] |= {"license": "Apache-2.0", "source": "elsewhere"}
    answers = write_jsonl(folder / "answers.jsonl", rows)
    config = FeatureConfig(captured_layers=layers)
    capture_features(cyclic_target(), answers, folder / "features", config, progress=no_bars())
    write_history(folder / "features", "forerun data prepare", ["forerun data regenerate"], {})


def run(
    folder: Path,
    *,
    target: TransformersTarget | None = None,
    shape: DrafterConfig | None = None,
    config: TrainConfig = SMALL,
    output: Path | None = None,
    resume: bool = False,
) -> TrainResult:
    result = train_drafter(
        cyclic_target() if target is None else target,
        folder / "features",
        folder / "answers.jsonl",
        tiny_config(cyclic_target(), draft_vocab_size=VOCAB - 1) if shape is None else shape,
        config,
        folder / "drafter" if output is None else output,
        folder / "run",
        command="forerun train",
        resume=resume,
        progress=no_bars(),
    )
    assert isinstance(result, TrainResult)
    return result


def test_the_drafter_can_be_loaded_and_names_its_ancestry(tmp_path: Path) -> None:
    """Catches a drafter whose file is not what was trained, and a provenance that leaves a step out."""
    prepare(tmp_path)
    result = run(tmp_path)
    drafter = load_network_drafter(tmp_path / "drafter", cyclic_target(), optimize=False)
    assert isinstance(drafter, NetworkDrafter)
    trained = result.network.state_dict()
    for name, weight in drafter.network.state_dict().items():
        assert torch.equal(weight, trained[name].to(torch.bfloat16).to(weight.dtype)), name
    provenance = read_provenance(tmp_path / "drafter")
    assert provenance.commands == ("forerun data regenerate", "forerun data prepare", "forerun train")
    assert provenance.data_sha256 == file_sha256(tmp_path / "answers.jsonl")
    assert (provenance.data_rows, provenance.data_tokens) == (ROWS, 10 * ROWS)
    assert provenance.data_licenses == {"MIT": ROWS - 1, "Apache-2.0": 1}
    assert provenance.data_sources == {"tests": ROWS - 1, "elsewhere": 1}
    assert (provenance.target_name, provenance.target_fingerprint) == ("markov", cyclic_target().fingerprint)
    assert provenance.loss == "TVP, linear schedule, beta 0, anneal fraction 0.8; position weights bound"
    assert (provenance.steps, provenance.seed, provenance.anchors) == (10, 0, result.anchors)
    assert provenance.validation == result.validation
    assert "torch" in provenance.versions and "cores" in provenance.machine


def test_the_draft_vocabulary_is_the_most_frequent_of_the_training_answers(tmp_path: Path) -> None:
    """C54. Catches counts over prompts, or over validation rows: the drafter would be shaped by what it is judged on.

    All tokens are about as frequent, but for 7, which is cut out of every answer.
    """
    prepare(tmp_path)
    texts = [[(place + 5 * index) % VOCAB for place in range(14)] for index in range(ROWS)]
    rows = [
        answer_row(f"p{index}/0", [7] * 9 + text[:4], [6 if token == 7 else token for token in text[4:]])
        for index, text in enumerate(texts)
    ]
    answers = write_jsonl(tmp_path / "answers.jsonl", rows)
    other = tmp_path / "other"
    capture_features(cyclic_target(), answers, other, FeatureConfig(captured_layers=(0, 1)), progress=no_bars())
    (tmp_path / "features").rename(tmp_path / "old")
    other.rename(tmp_path / "features")
    run(tmp_path)
    drafter = load_network_drafter(tmp_path / "drafter", cyclic_target(), optimize=False)
    assert isinstance(drafter, NetworkDrafter)
    assert drafter.vocabulary.target_ids.tolist() == [token for token in range(VOCAB) if token != 7]
    assert read_provenance(tmp_path / "drafter").vocabulary_coverage == 1.0


def test_a_resumed_run_writes_the_same_drafter(tmp_path: Path) -> None:
    prepare(tmp_path)
    run(tmp_path)
    weights = (tmp_path / "drafter" / "model.safetensors").read_bytes()
    run(tmp_path, resume=True)
    assert (tmp_path / "drafter" / "model.safetensors").read_bytes() == weights
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "answers.jsonl", "drafter", "features", "features.history.json", "run",
    ]  # fmt: skip


def occupied_by_a_model(folder: Path) -> None:
    (folder / "drafter").mkdir()
    (folder / "drafter" / "config.json").write_text("{}", encoding="utf-8")
    (folder / "drafter" / "model.safetensors").write_text("precious", encoding="utf-8")


def changed_answers(folder: Path) -> None:
    with (folder / "answers.jsonl").open("a", encoding="utf-8") as answers:
        answers.write(json.dumps(answer_row("new/0", [1, 2], [3, 4])) + "\n")


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (occupied_by_a_model, r"drafter exists and is no drafter; .*--output"),
        (lambda folder: (folder / "drafter").write_text("precious", encoding="utf-8"), r"exists and is no drafter"),
        (changed_answers, r"captured from another file than .*answers\.jsonl"),
        (lambda folder: (folder / "answers.jsonl").unlink(), r"no such file: .*answers\.jsonl"),
        (lambda folder: (folder / "features.history.json").unlink(), r"features\.history\.json is missing"),
        (lambda folder: (folder / "features" / "manifest.json").unlink(), "no captured features"),
        (lambda folder: (folder / "features" / "shard-00000.safetensors").unlink(), f"holds 0 of {ROWS} rows"),
    ],
)
def test_what_would_fail_at_the_end_fails_at_once(
    tmp_path: Path, spoil: Callable[[Path], object], complaint: str
) -> None:
    """Catches hours of training before a complaint, folders of the user replaced, and provenance of other data."""
    prepare(tmp_path)
    spoil(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(ForerunError, match=complaint):
        run(tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert not (tmp_path / "run").exists()


def test_an_empty_folder_and_an_older_drafter_may_be_replaced(tmp_path: Path) -> None:
    prepare(tmp_path)
    (tmp_path / "empty").mkdir()
    run(tmp_path, output=tmp_path / "empty")
    run(tmp_path, output=tmp_path / "empty", resume=True)
    assert (tmp_path / "empty" / "provenance.json").is_file()


def test_features_must_be_the_targets_and_have_the_layers(tmp_path: Path) -> None:
    """C53. Catches features of a model with other weights, and layers read in another order than they were captured."""
    prepare(tmp_path)
    with pytest.raises(ForerunError, match="captured from another target than chat-0"):
        run(tmp_path, target=chat_target())
    shape = tiny_config(cyclic_target()).model_copy(update={"captured_layers": (0, 2)})
    with pytest.raises(ForerunError, match=r"holds layers \[0, 1\], the drafter also reads \[2\]"):
        run(tmp_path, shape=shape)


def test_a_drafter_takes_the_layers_that_it_reads_out_of_many(tmp_path: Path) -> None:
    """Catches columns in the order of the folder, or another layer's: features of several drafters lie in one."""
    prepare(tmp_path)
    whole = read_features(tmp_path / "features")
    turned = read_features(tmp_path / "features", layers=(1, 0))
    alone = read_features(tmp_path / "features", layers=(1,))
    for all_layers, both, one in zip(whole, turned, alone, strict=True):
        assert torch.equal(both.features, all_layers.features.flip(1))
        assert torch.equal(one.features, all_layers.features[:, 1:])
        assert torch.equal(one.final_hidden, all_layers.final_hidden)
