"""A DSpark folder: written whole or not at all, read strictly, refused in one line that names what is wrong."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from forerun.distributions import Processing, SamplingParams
from forerun.drafters import (
    DraftNetwork,
    DraftVocabulary,
    NetworkDrafter,
    checkpoint_hash,
    load_network_drafter,
    read_provenance,
    save_drafter,
)
from forerun.errors import ForerunError
from forerun.models import Tokenizer, TransformersTarget
from tests.support.families import FAMILIES, random_model
from tests.support.networks import every_other, kinds_with_slow_variants, provenance, random_network, tiny_config, whole
from tests.support.tokenizers import VOCAB_SIZE, respelled, text_tokenizer

WEIGHTS = "model.safetensors"


def make_target(*, seed: int = 0, family: str = "llama", tokenizer: Tokenizer | None = None) -> TransformersTarget:
    model = random_model(FAMILIES[family](), seed=seed)
    return TransformersTarget(model, tokenizer or text_tokenizer(), name=f"{family}-{seed}")


TARGET = make_target()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drafters") / "tiny"
    vocabulary = every_other(TARGET)
    network = random_network(tiny_config(TARGET, draft_vocab_size=len(vocabulary)))
    save_drafter(folder, network, vocabulary, TARGET, provenance(TARGET))
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy that a test may break."""
    return Path(shutil.copytree(saved, tmp_path / "drafter"))


def refusal(folder: Path, target: TransformersTarget = TARGET) -> str:
    """What the user reads."""
    with pytest.raises(ForerunError) as error:
        load_network_drafter(folder, target)
    message = str(error.value)
    assert "\n" not in message
    return message


def rounded(network: DraftNetwork) -> DraftNetwork:
    """A checkpoint keeps bfloat16 weights."""
    nn.Module.to(network, torch.bfloat16)
    nn.Module.to(network, torch.float32)
    return network


@pytest.mark.parametrize("kind", kinds_with_slow_variants())
def test_a_drafter_comes_back_as_it_was_saved(kind: str, tmp_path: Path) -> None:
    """Catches weights under another name, a lost vocabulary, and rounding that only one side sees."""
    vocabulary = every_other(TARGET)
    config = tiny_config(TARGET, draft_vocab_size=len(vocabulary), kind=kind)
    save_drafter(tmp_path / kind, random_network(config), vocabulary, TARGET, provenance(TARGET))
    loaded = load_network_drafter(tmp_path / kind, TARGET, optimize=False)
    assert isinstance(loaded, NetworkDrafter)
    original = NetworkDrafter(rounded(random_network(config)), vocabulary, TARGET, optimize=False)
    assert loaded.config == original.config
    assert loaded.vocabulary.fingerprint == vocabulary.fingerprint
    ids = torch.arange(11) * 29 % VOCAB_SIZE
    features = TARGET.forward(ids, TARGET.new_cache(), captured=loaded.captured_layers).features
    proposals = []
    for drafter in (original, loaded):
        session = drafter.new_session()
        session.extend(ids, features)
        numbers = torch.tensor([0.1, 0.9, 0.5, 0.3], dtype=torch.float64)
        proposals.append(session.propose(17, 4, Processing(SamplingParams(), ids.tolist()), uniforms=numbers))
    assert torch.equal(proposals[0].token_ids, proposals[1].token_ids)
    assert torch.equal(proposals[0].law.dense(), proposals[1].law.dense())


def test_saving_again_gives_the_same_file(saved: Path, tmp_path: Path) -> None:
    """Catches drift from load to save, and files that depend on when they were written."""
    loaded = load_network_drafter(saved, TARGET, optimize=False)
    assert isinstance(loaded, NetworkDrafter)
    save_drafter(tmp_path / "again", loaded.network, loaded.vocabulary, TARGET, read_provenance(saved))
    for name in (WEIGHTS, "config.json", "provenance.json"):
        assert (tmp_path / "again" / name).read_bytes() == (saved / name).read_bytes(), name
    assert checkpoint_hash(tmp_path / "again") == checkpoint_hash(saved)
    assert sorted(file.name for file in saved.iterdir()) == ["config.json", WEIGHTS, "provenance.json"]
    assert read_provenance(saved) == provenance(TARGET)


def edit_tensors(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS)


def names() -> list[str]:
    network = random_network(tiny_config(TARGET))
    own = [f"network.{name}" for name in network.state_dict()]
    extra = ["draft_vocabulary", "tokenizer_hashes", "golden.token_ids", "golden.features", "golden.logits"]
    return own + extra


@pytest.mark.parametrize("name", names())
def test_every_missing_tensor_is_named(folder: Path, name: str) -> None:
    """C57. Catches random weights in place of missing ones."""
    edit_tensors(folder, lambda tensors: tensors.__delitem__(name))
    assert f"tensor {name} is missing" in refusal(folder)


@pytest.mark.parametrize("name", names())
def test_every_tensor_of_another_shape_is_named(folder: Path, name: str) -> None:
    """Catches shapes that broadcast, and stack traces of those that do not."""

    def cut(tensors: dict[str, Tensor]) -> None:
        tensors[name] = tensors[name][:-1].clone() if len(tensors[name]) > 1 else tensors[name].repeat(2, 1)

    edit_tensors(folder, cut)
    message = refusal(folder)
    assert name.removeprefix("network.") in message or name == "tokenizer_hashes"


def test_an_unknown_tensor_is_named(folder: Path) -> None:
    """Catches parts of a newer drafter that are silently left out."""
    edit_tensors(folder, lambda tensors: tensors.update(surprise=torch.zeros(1)))
    assert "unknown tensor surprise" in refusal(folder)


def edit_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")


def without(field: str, data: dict[str, Any]) -> None:
    del data[field]


@pytest.mark.parametrize("file", ["config.json", "provenance.json"])
def test_unknown_and_missing_fields_are_named(folder: Path, file: str) -> None:
    """Catches defaults for what a file does not say, and settings that nobody reads."""
    whole_text = (folder / file).read_text(encoding="utf-8")
    required = [key for key in json.loads(whole_text) if key not in ("architecture", "captured_convention")]
    for field in required:
        (folder / file).write_text(whole_text, encoding="utf-8")
        edit_json(folder / file, partial(without, field))
        assert f"{file}: field {field}: Field required" in refusal(folder)
    (folder / file).write_text(whole_text, encoding="utf-8")
    edit_json(folder / file, lambda data: data.update(rope_scaling=2.0))
    assert f"{file}: field rope_scaling: Extra inputs" in refusal(folder)


def put(data: dict[str, Any], field: str, value: object) -> None:
    """Set a field, named with dots where it lies deeper."""
    *outer, last = field.split(".")
    for name in outer:
        data = data[name]
    data[last] = value


WRONG_FIELDS: dict[str, tuple[str, object, str]] = {
    "other architecture": ("architecture", "parrot", "unknown architecture 'parrot'"),
    "other convention": ("captured_convention", "input", "captured_convention"),
    "negative layer": ("captured_layers", [-1, 0], "captured_layers"),
    "layer too high": ("captured_layers", [0, 3], "reads layer 3; llama-0 has 3"),
    "no layers": ("captured_layers", [], "captured_layers"),
    "odd heads": ("layer.num_kv_heads", 3, "num_heads 4 is not a multiple of num_kv_heads 3"),
    "text for a number": ("block_size", "four", "block_size"),
    "hidden size": ("hidden_size", 48, "hidden_size 48; llama-0 has 32"),
    "vocabulary": ("target_vocab_size", 301, "target_vocab_size 301; llama-0 has 300"),
    "draft vocabulary": (
        "draft_vocab_size",
        149,
        "markov_next has shape (150, 5), the config asks for (149",
    ),
}


@pytest.mark.parametrize(("field", "value", "expected"), WRONG_FIELDS.values(), ids=WRONG_FIELDS.keys())
def test_wrong_fields_are_named(folder: Path, field: str, value: object, expected: str) -> None:
    """Catches settings that load and compute something else."""
    edit_json(folder / "config.json", lambda data: put(data, field, value))
    assert expected in refusal(folder)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("layer.rope.inverse_frequencies", [1.0, 0.5, 0.3, 0.2]),
        ("layer.rope.attention_scaling", 3.0),
        ("layer.norm_eps", 0.5),
        ("layer.window", 2),
    ],
)
def test_the_golden_block_catches_numbers_that_shapes_cannot(folder: Path, field: str, value: object) -> None:
    """Catches a rotary base or a norm that differs from training's: everything loads and acceptance is poor."""
    edit_json(folder / "config.json", lambda data: put(data, field, value))
    assert "its golden block's logits differ by" in refusal(folder)


@pytest.mark.parametrize("name", ["network.backbone.layers.1.mlp.up.weight", "network.backbone.mask_embedding"])
def test_the_golden_block_catches_changed_weights(folder: Path, name: str) -> None:
    """Catches a file that was put together from two."""
    edit_tensors(folder, lambda tensors: tensors[name].neg_())
    assert "its golden block's logits differ by" in refusal(folder)


def cut_file(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


BREAKAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no folder": (lambda folder: shutil.rmtree(folder), "no drafter at"),
    "no configuration": (lambda folder: (folder / "config.json").unlink(), "no config.json"),
    "no provenance": (lambda folder: (folder / "provenance.json").unlink(), "no provenance.json"),
    "no weights": (lambda folder: (folder / WEIGHTS).unlink(), f"no {WEIGHTS}"),
    "half of the weights": (lambda folder: cut_file(folder / WEIGHTS), "corrupt or truncated"),
    "empty weights": (lambda folder: (folder / WEIGHTS).write_bytes(b""), "corrupt or truncated"),
    "half of the configuration": (lambda folder: cut_file(folder / "config.json"), "config.json: not a JSON object"),
    "a list": (lambda folder: (folder / "config.json").write_text("[]"), "config.json: not a JSON object"),
    "no text": (lambda folder: (folder / "config.json").write_bytes(b"\xff\xfe\x00"), "config.json: not a JSON object"),
    "half of the provenance": (lambda folder: cut_file(folder / "provenance.json"), "provenance.json: field (whole"),
    "no text in the provenance": (
        lambda folder: (folder / "provenance.json").write_bytes(b"\xff\xfe\x00"),
        "provenance.json: not text",
    ),
}


@pytest.mark.parametrize(("damage", "expected"), BREAKAGES.values(), ids=BREAKAGES.keys())
def test_damaged_folders_are_refused(folder: Path, damage: Callable[[Path], object], expected: str) -> None:
    """Catches stack traces where a file is missing, cut or of another kind."""
    damage(folder)
    assert expected in refusal(folder)


def test_another_tokenizer_is_refused_by_its_first_differing_id(folder: Path) -> None:
    """Catches drafters of another tokenizer with the same number of ids: every draft would be noise."""
    other = make_target(tokenizer=respelled({"<user>": "<person>", "<assistant>": "<helper>"}))
    assert "the first differing id is 2, which is '<person>' in llama-0" in refusal(folder, other)


@pytest.mark.parametrize(("seed", "family"), [(1, "llama"), (0, "qwen3")])
def test_another_target_is_refused(folder: Path, seed: int, family: str) -> None:
    """Catches a fine-tune or another family with the same shapes and tokenizer."""
    assert "its target's features differ by" in refusal(folder, make_target(seed=seed, family=family))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_same_target_in_another_type_is_accepted(folder: Path, dtype: torch.dtype) -> None:
    """Catches a golden tolerance that rounding does not meet."""
    model = random_model(FAMILIES["llama"]())
    nn.Module.to(model, dtype)
    target = TransformersTarget(model, text_tokenizer(), name="other type")
    drafter = load_network_drafter(folder, target)
    assert isinstance(drafter, NetworkDrafter)
    ids = torch.arange(7) * 29 % VOCAB_SIZE
    session = drafter.new_session()
    session.extend(ids, target.forward(ids, target.new_cache(), captured=drafter.captured_layers).features)
    processing = Processing(SamplingParams(), ids.tolist())
    assert session.propose(4, 3, processing, uniforms=torch.full((3,), 0.4, dtype=torch.float64)).horizon == 3


@pytest.mark.parametrize("existing", [False, True])
def test_a_failing_save_leaves_what_was_there(
    saved: Path, tmp_path: Path, existing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches half a folder under the final name, a good one that is gone, and scratch folders that pile up."""
    place = tmp_path / "runs" / "drafter"
    if existing:
        shutil.copytree(saved, place)
    before = checkpoint_hash(place) if existing else None

    def fail(*_arguments: object, **_options: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("forerun.drafters.checkpoint.save_file", fail)
    with pytest.raises(OSError, match="no space left"):
        save_drafter(place, random_network(tiny_config(TARGET)), whole(TARGET), TARGET, provenance(TARGET))
    assert [file.name for file in place.parent.iterdir()] == (["drafter"] if existing else [])
    assert (checkpoint_hash(place) if existing else None) == before


def test_a_vocabulary_of_another_size_is_refused() -> None:
    """Catches draft ids that mean other tokens than in training."""
    vocabulary = DraftVocabulary(torch.arange(150), VOCAB_SIZE)
    with pytest.raises(ForerunError, match="has 150 tokens, the network 149"):
        NetworkDrafter(random_network(tiny_config(TARGET, draft_vocab_size=149)), vocabulary, TARGET)
