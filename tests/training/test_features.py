"""What the target thinks of its answers, captured once: right, whole, and of the data and settings it says."""

import json
from dataclasses import replace
from pathlib import Path
from typing import final

import pytest
import torch
from rich.progress import Progress, TaskID
from safetensors.torch import load_file, save_file

from forerun.errors import ForerunError
from forerun.models import TransformersTarget
from forerun.training import FeatureConfig, capture_features, read_features, read_manifest
from forerun.training.features import file_sha256, predicted_bytes
from tests.support.families import FAMILIES, random_model
from tests.support.tokenizers import text_tokenizer
from tests.support.writers import answer_row, chat_target, no_bars, write_jsonl

HALF = 2e-3  # relative rounding of half precision is 2**-11; sums of a few such numbers stay below this
CONFIG = FeatureConfig(captured_layers=(0, 1), rows_per_shard=3)


def answers(folder: Path, *, rows: int = 8) -> Path:
    """Rows of different lengths; the third answer is too short to learn from."""
    generator = torch.Generator().manual_seed(0)
    table = []
    for index in range(rows):
        ids = torch.randint(4, 300, (3 + index + 5,), generator=generator).tolist()
        table.append(answer_row(f"p{index}/0", ids[: 3 + index], ids[3 + index :][: 1 if index == 2 else None]))
    return write_jsonl(folder / "answers.jsonl", table)


def capture(
    folder: Path,
    config: FeatureConfig = CONFIG,
    *,
    target: TransformersTarget | None = None,
    progress: Progress | None = None,
    rows: int = 8,
) -> int:
    return capture_features(
        chat_target() if target is None else target,
        answers(folder, rows=rows),
        folder / "features",
        config,
        progress=no_bars() if progress is None else progress,
    )


def shards(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "features").glob("*.safetensors"))


def test_features_are_the_outputs_of_the_layers(tmp_path: Path) -> None:
    """Catches the layer before or after, prompts that run into each other, and laws that are not the target's.

    The oracle is transformers' own list of hidden states: entry l + 1 is the output of 0-based layer l.
    """
    target = chat_target()
    assert capture(tmp_path, target=target) == 7
    rows = read_features(tmp_path / "features")
    assert [row.job for row in rows] == [f"p{index}/0" for index in range(8) if index != 2]
    for row in rows:
        index = int(row.job[1])
        assert row.prompt_length == 3 + index and len(row.token_ids) == 8 + index
        outputs = target.model(input_ids=row.token_ids[None], output_hidden_states=True)
        torch.testing.assert_close(row.features[:, 0].double(), outputs.hidden_states[1][0], rtol=HALF, atol=HALF)
        torch.testing.assert_close(row.final_hidden.double(), outputs.hidden_states[2][0], rtol=HALF, atol=HALF)
        step = target.teach(row.token_ids, captured=(0, 1))
        torch.testing.assert_close(row.features.double(), step.features, rtol=HALF, atol=HALF)
        logits = outputs.logits[0]
        torch.testing.assert_close(row.log_normaliser.double(), logits.logsumexp(-1), rtol=1e-5, atol=1e-5)
        law = (row.final_hidden.double() @ target.head_weight.T - row.log_normaliser[:, None]).exp()
        torch.testing.assert_close(law, logits.softmax(-1), rtol=0.1, atol=5e-3)


def test_the_order_of_layers_is_the_one_asked_for(tmp_path: Path) -> None:
    target = chat_target()
    capture(tmp_path, FeatureConfig(captured_layers=(1, 0)), target=target)
    row = read_features(tmp_path / "features")[0]
    step = target.teach(row.token_ids, captured=(0, 1))
    torch.testing.assert_close(row.features.flip(1).double(), step.features, rtol=HALF, atol=HALF)


def test_long_sequences_are_cut(tmp_path: Path) -> None:
    """C50. Catches a cut that forgets one of the columns."""
    capture(tmp_path, FeatureConfig(captured_layers=(0,), max_length=9))
    rows = read_features(tmp_path / "features")
    assert [len(row.token_ids) for row in rows] == [8, 9, 9, 9, 9, 9, 9]
    assert all(
        len(row.features) == len(row.final_hidden) == len(row.log_normaliser) == len(row.token_ids) for row in rows
    )


@final
class Killed(Progress):
    """A bar that interrupts the work when it has moved ``count`` times."""

    def __init__(self, count: int) -> None:
        super().__init__(disable=True)
        self.count = count

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        self.count -= 1
        if self.count == 0:
            raise KeyboardInterrupt


def test_an_interrupted_capture_goes_on_with_the_first_missing_shard(tmp_path: Path) -> None:
    """Catches work done twice, shards left out, and half a folder that passes for a whole one."""
    whole = tmp_path / "whole"
    whole.mkdir()
    capture(whole)
    with pytest.raises(KeyboardInterrupt):
        capture(tmp_path, progress=Killed(2))
    assert shards(tmp_path) == ["shard-00000.safetensors", "shard-00001.safetensors"]
    with pytest.raises(ForerunError, match="holds 6 of 7 rows; run forerun data prepare again"):
        read_features(tmp_path / "features")
    (tmp_path / "features" / "shard-00002.part").write_bytes(b"half a shard")
    target, passes = chat_target(), []
    target.model.register_forward_pre_hook(lambda _module, _args: passes.append(1))
    capture(tmp_path, target=target)
    assert len(passes) == 1  # the last shard has one row
    for name in shards(whole):
        assert (tmp_path / "features" / name).read_bytes() == (whole / "features" / name).read_bytes()
    assert not list((tmp_path / "features").glob("*.part"))


def test_a_deleted_shard_is_made_again(tmp_path: Path) -> None:
    """Catches a missing shard in the middle that nobody notices."""
    capture(tmp_path)
    lost = tmp_path / "features" / "shard-00001.safetensors"
    content = lost.read_bytes()
    lost.unlink()
    with pytest.raises(ForerunError, match="holds 4 of 7 rows"):
        read_features(tmp_path / "features")
    capture(tmp_path)
    assert lost.read_bytes() == content


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (replace(CONFIG, captured_layers=(0,)), "captured_layers"),
        (replace(CONFIG, captured_layers=(1, 0)), "captured_layers"),
        (replace(CONFIG, max_length=10), "max_length"),
        (replace(CONFIG, rows_per_shard=4), "rows_per_shard"),
        (replace(CONFIG, matmul_precision="high"), "matmul_precision"),
    ],
)
def test_other_settings_are_refused(tmp_path: Path, config: FeatureConfig, named: str) -> None:
    """C53. Catches old shards under new settings."""
    capture(tmp_path)
    with pytest.raises(ForerunError, match=f"another {named}; give another folder"):
        capture(tmp_path, config)


def test_other_data_and_other_targets_are_refused(tmp_path: Path) -> None:
    """C53. Catches features of rows that are no longer in the file, and of a model with other weights."""
    capture(tmp_path)
    with pytest.raises(ForerunError, match="another target"):
        capture(tmp_path, target=chat_target(seed=1))
    with pytest.raises(ForerunError, match="another dtype"):
        capture(tmp_path, target=chat_target(dtype=torch.float32))
    with pytest.raises(ForerunError, match="another data_sha256"):
        capture(tmp_path, rows=9)
    assert read_manifest(tmp_path / "features")["data_sha256"] != file_sha256(tmp_path / "answers.jsonl")


def test_disk_use_is_known_beforehand(tmp_path: Path) -> None:
    """C61: 1 M tokens of three layers and the last state of a model 576 wide are 4.608 GB."""
    assert predicted_bytes(1_000_000, 576, 3) == pytest.approx(4.608e9, rel=0.02)
    rows = [answer_row(f"p{index}/0", [5] * 50, [6] * 150) for index in range(20)]
    path = write_jsonl(tmp_path / "answers.jsonl", rows)
    capture_features(
        chat_target(), path, tmp_path / "features", FeatureConfig(captured_layers=(0, 1)), progress=no_bars()
    )
    size = sum(file.stat().st_size for file in (tmp_path / "features").glob("*.safetensors"))
    assert size == pytest.approx(predicted_bytes(20 * 200, 16, 2), rel=0.02)


@pytest.mark.parametrize("family", ["gemma2", "cohere2"])
def test_heads_that_are_no_matrix_product_are_refused(tmp_path: Path, family: str) -> None:
    """Catches soft-capped and scaled logits, whose laws would be reconstructed wrongly without a word."""
    target = TransformersTarget(random_model(FAMILIES[family]()), text_tokenizer(), name=family)
    with pytest.raises(ForerunError, match=f"{family}: its logits differ .* head times final state"):
        capture(tmp_path, target=target)
    assert not shards(tmp_path)


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - {"gemma2", "cohere2"}))
def test_plain_heads_of_all_families_are_taken(tmp_path: Path, family: str) -> None:
    """Catches a check that refuses a plain head, and a final norm that is not the one before the head."""
    target = TransformersTarget(random_model(FAMILIES[family]()), text_tokenizer(), name=family)
    assert capture(tmp_path, target=target) == 7


def test_values_beyond_half_precision_are_refused(tmp_path: Path) -> None:
    """Catches infinities in the shards, which would turn every loss into NaN hours later."""
    target = chat_target()
    target.embedding_weight.mul_(1e6)
    with pytest.raises(ForerunError, match="too large for half precision"):
        capture(tmp_path, target=target)
    assert not shards(tmp_path)


def test_answers_that_teach_nothing(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "answers.jsonl", [answer_row("p/0", [5, 6], [7])])
    with pytest.raises(ForerunError, match="no answer of two tokens or more"):
        capture_features(chat_target(), path, tmp_path / "features", CONFIG, progress=no_bars())
    assert not (tmp_path / "features").exists()


@pytest.mark.parametrize("field", ["job", "prompt_ids", "answer_ids"])
def test_a_row_without_ids_is_named(tmp_path: Path, field: str) -> None:
    rows = [answer_row(f"p{index}/0", [5, 6], [7, 8]) for index in range(2)]
    del rows[1][field]
    path = write_jsonl(tmp_path / "answers.jsonl", rows)
    with pytest.raises(ForerunError, match=rf"answers\.jsonl, line 2: field '{field}' is missing"):
        capture_features(chat_target(), path, tmp_path / "features", CONFIG, progress=no_bars())


def test_damaged_shards_are_named(tmp_path: Path) -> None:
    """Catches truncated files, and rows whose lengths do not add up to the tokens stored (C53)."""
    capture(tmp_path)
    first = tmp_path / "features" / "shard-00000.safetensors"
    content, tensors = first.read_bytes(), load_file(first)
    first.write_bytes(content[:-100])
    with pytest.raises(ForerunError, match=r"shard-00000\.safetensors: corrupt or truncated"):
        read_features(tmp_path / "features")
    metadata = {"jobs": json.dumps(["a", "b", "c"])}
    save_file(tensors | {"lengths": tensors["lengths"] + 1}, first, metadata=metadata)
    with pytest.raises(ForerunError, match=r"shard-00000\.safetensors: rows do not add up"):
        read_features(tmp_path / "features")


def test_a_folder_without_features(tmp_path: Path) -> None:
    for reader in (read_features, read_manifest):
        with pytest.raises(ForerunError, match="no captured features; run forerun data prepare first"):
            reader(tmp_path)


def test_unknown_precisions_are_refused() -> None:
    with pytest.raises(ForerunError, match="matmul_precision is 'low'; choose one of highest"):
        FeatureConfig(captured_layers=(0,), matmul_precision="low")
