"""Loading a target: every problem is one line that names it, and nothing random stands in for what is missing."""

import json
import logging
from collections.abc import Callable
from pathlib import Path

import huggingface_hub.constants
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Lfm2Config, LlamaConfig, MambaConfig, MiniMaxConfig, PreTrainedConfig, T5Config

from forerun.errors import ForerunError
from forerun.models import TransformersTarget, load_target
from forerun.models.quiet import quiet_transformers
from tests.support.families import COMMON, FAMILIES, GROUPED, HEADS, random_model, write_model
from tests.support.tokenizers import byte_tokenizer

WEIGHTS = "model.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A whole model; each test breaks its own copy."""
    return write_model(tmp_path / "model", FAMILIES["llama"]())


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test may wait for a network."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


def refusal(name: str | Path, *, dtype: str = "float32") -> str:
    """What the user reads."""
    with pytest.raises(ForerunError) as error:
        load_target(name, dtype=dtype)
    message = str(error.value)
    assert "\n" not in message
    return message


def test_a_folder_is_loaded_with_its_tokenizer(folder: Path) -> None:
    """Catches a target that forgets what it was called, or whose tokenizer is another."""
    target = load_target(folder, dtype="float64")
    assert (target.name, target.dtype, target.device) == (str(folder), torch.float64, torch.device("cpu"))
    assert target.tokenizer.encode("the cat") == byte_tokenizer()("the cat")["input_ids"]
    assert not any(weight.requires_grad for weight in target.model.parameters())


@pytest.mark.parametrize(
    "name", ["no-such-model", "no-such-owner/no-such-model", "/no/such/folder", "./nowhere", "a b"]
)
def test_an_unknown_name_is_refused(name: str) -> None:
    """Catches a stack trace, and a message that does not say what was looked for."""
    message = refusal(name)
    assert message.startswith(f"unknown model {name!r}")
    assert "smollm2-135m" in message


def test_an_unknown_dtype_is_refused(folder: Path) -> None:
    """Catches a silent fall-back to another type."""
    assert refusal(folder, dtype="float16") == "unknown dtype 'float16'; choose one of float32, bfloat16, float64"


def test_a_folder_without_a_configuration_is_refused(tmp_path: Path) -> None:
    """Catches the hub being asked for a folder's name."""
    assert "no config.json" in refusal(tmp_path)


def break_config(folder: Path) -> None:
    (folder / "config.json").write_text("{", encoding="utf-8")


def forget_kind(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "no-such-kind"}', encoding="utf-8")


def drop_weights(folder: Path) -> None:
    (folder / WEIGHTS).unlink()


def cut_weights(folder: Path) -> None:
    whole = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(whole[: len(whole) // 2])


def cut_header(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:5])


def rewrite(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def drop_key(folder: Path) -> None:
    rewrite(folder, lambda tensors: tensors.__delitem__("model.layers.1.mlp.up_proj.weight"))


def drop_head(folder: Path) -> None:
    rewrite(folder, lambda tensors: tensors.__delitem__("lm_head.weight"))


def change_shape(folder: Path) -> None:
    def cut(tensors: dict[str, torch.Tensor]) -> None:
        tensors["model.norm.weight"] = tensors["model.norm.weight"][:-1].clone()

    rewrite(folder, cut)


def break_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{"version": "1.0"}', encoding="utf-8")


def cut_tokenizer(folder: Path) -> None:
    text = (folder / "tokenizer.json").read_text(encoding="utf-8")
    (folder / "tokenizer.json").write_text(text[: len(text) // 2], encoding="utf-8")


def drop_tokenizer(folder: Path) -> None:
    for file in folder.glob("tokenizer*"):
        file.unlink()


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "configuration no JSON": (break_config, "configuration cannot be read"),
    "unknown kind": (forget_kind, "no-such-kind"),
    "no weights": (drop_weights, "checkpoint cannot be read"),
    "half of the weights": (cut_weights, "checkpoint cannot be read"),
    "five bytes of the weights": (cut_header, "checkpoint cannot be read"),
    "missing tensor": (drop_key, "missing keys: model.layers.1.mlp.up_proj.weight"),
    "missing head": (drop_head, "missing keys: lm_head.weight"),
    "other shape": (change_shape, "other shapes: model.norm.weight is (31,) and not (32,)"),
    "tokenizer of another form": (break_tokenizer, "tokenizer cannot be read"),
    "half of the tokenizer": (cut_tokenizer, "tokenizer cannot be read"),
    "no tokenizer": (drop_tokenizer, "tokenizer cannot be read"),
}


@pytest.mark.parametrize(("damage", "expected"), DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_folder_is_refused(folder: Path, damage: Callable[[Path], None], expected: str) -> None:
    """Catches stack traces, random weights in place of missing ones, and messages that do not name the problem."""
    damage(folder)
    message = refusal(folder)
    assert expected in message
    assert str(folder) in message


REFUSED: dict[str, Callable[[], PreTrainedConfig]] = {
    "mamba": lambda: MambaConfig(vocab_size=64, hidden_size=32, state_size=4, num_hidden_layers=2),
    "convolution": lambda: Lfm2Config(**GROUPED, layer_types=["conv", "full_attention", "conv"]),
    "linear attention": lambda: MiniMaxConfig(
        **HEADS, num_local_experts=2, layer_types=["linear_attention", "full_attention", "linear_attention"]
    ),
}


@pytest.mark.parametrize("config", REFUSED.values(), ids=REFUSED.keys())
def test_a_model_with_a_recurrent_state_is_refused(config: Callable[[], PreTrainedConfig]) -> None:
    """Catches states that cannot be rolled back: answers would be wrong after the first rejection."""
    with pytest.raises(ForerunError, match="this one: recurrent models keep a state"):
        TransformersTarget(random_model(config()), None, name="this one")


def test_an_encoder_decoder_is_refused(tmp_path: Path) -> None:
    """Catches a model of another kind that loads half."""
    with quiet_transformers():
        T5Config(vocab_size=64, d_model=16, num_layers=1).save_pretrained(tmp_path)
    assert "cannot be read" in refusal(tmp_path)


def test_loading_is_quiet_and_leaves_other_peoples_logging_alone() -> None:
    """Catches notices of other libraries in front of a one-line error, and a program that is silent afterwards."""
    loggers = [logging.getLogger(name) for name in ("huggingface_hub", "transformers")]
    before = [logger.level for logger in loggers]
    with quiet_transformers():
        assert not any(logger.isEnabledFor(logging.WARNING) for logger in loggers)
    assert [logger.level for logger in loggers] == before


def test_stop_ids_come_from_both_configurations(folder: Path) -> None:
    """Catches chat models that never stop: their end of turn stands in generation_config.json only."""
    path = folder / "generation_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(settings | {"eos_token_id": [7, 3]}), encoding="utf-8")
    assert load_target(folder).stop_ids == (1, 3, 7)
    none = random_model(LlamaConfig(**{**COMMON, "eos_token_id": None}))
    assert TransformersTarget(none, None, name="endless").stop_ids == ()
