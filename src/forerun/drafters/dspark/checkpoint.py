"""A DSpark drafter on disk: ``config.json``, ``provenance.json`` and ``model.safetensors``, read strictly.

Beside the weights the tensors hold the draft vocabulary, a hash of every target token (to name the first id of another
tokenizer), and a golden block: inputs and outputs whose match is checked on every load, so that a file that loads but
computes something else (another norm, another rotary base, another layer) is refused.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

import torch
from jaxtyping import Float, Int
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from forerun.drafters.draft_vocabulary import DraftVocabulary
from forerun.drafters.dspark.config import DSparkConfig
from forerun.drafters.dspark.drafter import DSparkDrafter, check_fits
from forerun.drafters.dspark.network import DSparkNetwork
from forerun.drafters.provenance import Provenance
from forerun.errors import ForerunError
from forerun.models import TransformersTarget

WEIGHTS_FILE = "model.safetensors"
CONFIG_FILE = "config.json"
PROVENANCE_FILE = "provenance.json"
_GOLDEN_POSITIONS = 8
_GOLDEN_TOLERANCE = 0.05  # of the golden states' largest value: bfloat16 targets stay below it, wrong wiring does not
_WEIGHT_PREFIX = "network."


def save_dspark(
    folder: Path,
    network: DSparkNetwork,
    vocabulary: DraftVocabulary,
    target: TransformersTarget,
    provenance: Provenance,
) -> None:
    """Write a checkpoint folder whole or not at all; weights are rounded to bfloat16.

    Args:
        folder: created, or replaced when it exists.
        network: trained weights.
        vocabulary: its draft vocabulary.
        target: the model it was trained for.
        provenance: how it came to be.

    Raises:
        ForerunError: something else stands in the folder's place.
    """
    check_replaceable(folder)
    rounded = DSparkNetwork(network.config)
    rounded.load_state_dict({name: value.to(torch.bfloat16).float() for name, value in network.state_dict().items()})
    token_ids, features, states = _golden_block(rounded, target)
    tensors = {_WEIGHT_PREFIX + name: value.to(torch.bfloat16) for name, value in rounded.state_dict().items()}
    tensors |= {
        "draft_vocabulary": vocabulary.target_ids.to(torch.int32),
        "tokenizer_hashes": target.tokenizer.token_hashes(),
        "golden.token_ids": token_ids,
        "golden.features": features,
        "golden.states": states,
    }
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
        fresh, former = Path(scratch) / "fresh", Path(scratch) / "former"
        fresh.mkdir()
        save_file({name: value.contiguous() for name, value in tensors.items()}, fresh / WEIGHTS_FILE)
        (fresh / CONFIG_FILE).write_text(network.config.model_dump_json(indent=2) + "\n", encoding="utf-8")
        (fresh / PROVENANCE_FILE).write_text(provenance.model_dump_json(indent=2) + "\n", encoding="utf-8")
        if folder.exists():
            folder.rename(former)
        fresh.rename(folder)


def check_replaceable(folder: Path) -> None:
    """Refuse to put a drafter in the place of anything but a drafter or an empty folder.

    Raises:
        ForerunError: a file or a folder with other content is there; asked before hours of training, too.
    """
    if folder.is_dir() and ((folder / PROVENANCE_FILE).is_file() or not any(folder.iterdir())):
        return
    if folder.exists():
        raise ForerunError(f"{folder} exists and is no drafter; it would be replaced, so give another --output")


def load_dspark(folder: Path, target: TransformersTarget, *, optimize: bool = True) -> DSparkDrafter:
    """Read a checkpoint for a target.

    Args:
        folder: written by ``save_dspark``.
        target: the model to draft for.
        optimize: see :class:`DSparkDrafter`.

    Raises:
        ForerunError: one line that names the missing file, field or tensor, the first differing token id, or the
            mismatch.
    """
    config = _read_config(folder)
    read_provenance(folder)
    check_fits(config, target)
    tensors = _read_tensors(folder / WEIGHTS_FILE)
    _check_tokenizer(_take(tensors, "tokenizer_hashes", folder), target)
    network = DSparkNetwork(config)
    weights = {}
    for name, value in network.state_dict().items():
        weights[name] = _take(tensors, _WEIGHT_PREFIX + name, folder, tuple(value.shape)).float()
    network.load_state_dict(weights)
    chosen = _take(tensors, "draft_vocabulary", folder, (config.draft_vocab_size,))
    vocabulary = DraftVocabulary(chosen, config.target_vocab_size)
    layers, hidden = len(config.captured_layers), config.hidden_size
    token_ids = _take(tensors, "golden.token_ids", folder, (_GOLDEN_POSITIONS,))
    features = _take(tensors, "golden.features", folder, (_GOLDEN_POSITIONS - 1, layers, hidden))
    states = _take(tensors, "golden.states", folder, (config.block_size, hidden))
    if tensors:
        raise ForerunError(f"{folder}: unknown tensor {sorted(tensors)[0]}; the file is of another version")
    _check_golden(network, target, token_ids, features, states, folder)
    return DSparkDrafter(network, vocabulary, target, optimize=optimize)


def read_provenance(folder: Path) -> Provenance:
    """How a checkpoint came to be.

    Raises:
        ForerunError: missing or not in the expected form.
    """
    try:
        return Provenance.model_validate_json(_read_text(folder / PROVENANCE_FILE))
    except ValidationError as error:
        raise ForerunError(f"{folder / PROVENANCE_FILE}: {_first_problem(error)}") from error


def checkpoint_hash(folder: Path) -> str:
    """SHA-256 of the weights file."""
    return hashlib.sha256((folder / WEIGHTS_FILE).read_bytes()).hexdigest()


def _read_config(folder: Path) -> DSparkConfig:
    try:
        return DSparkConfig.model_validate_json(_read_text(folder / CONFIG_FILE))
    except ValidationError as error:
        raise ForerunError(f"{folder / CONFIG_FILE}: {_first_problem(error)}") from error


def _read_text(path: Path) -> str:
    if not path.is_file():
        raise ForerunError(
            f"{path.parent}: no {path.name}; a drafter folder holds {CONFIG_FILE}, {PROVENANCE_FILE} and {WEIGHTS_FILE}"
        )
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ForerunError(f"{path}: not text ({error.reason} at byte {error.start}); the file is damaged") from error


def _read_tensors(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise ForerunError(f"{path.parent}: no {path.name}; the drafter's weights are missing")
    try:
        with safe_open(path, framework="pt") as stored:
            names: list[str] = stored.keys()
            return {name: stored.get_tensor(name) for name in names}
    except (SafetensorError, OSError) as error:
        raise ForerunError(f"{path}: corrupt or truncated ({error}); fetch it again") from error


def _take(tensors: dict[str, Tensor], name: str, folder: Path, shape: tuple[int, ...] | None = None) -> Tensor:
    if name not in tensors:
        raise ForerunError(
            f"{folder / WEIGHTS_FILE}: tensor {name} is missing; the checkpoint is incomplete, fetch it again"
        )
    stored = tensors.pop(name)
    if shape is not None and stored.shape != shape:
        raise ForerunError(f"{folder}: tensor {name} has shape {tuple(stored.shape)}, the config asks for {shape}")
    return stored


def _first_problem(error: ValidationError) -> str:
    problem = error.errors()[0]
    return f"field {'.'.join(map(str, problem['loc'])) or '(whole file)'}: {problem['msg']}"


def _check_tokenizer(hashes: Int[Tensor, " vocab"], target: TransformersTarget) -> None:
    own = target.tokenizer.token_hashes()
    if len(hashes) != len(own):
        raise ForerunError(f"the drafter's tokenizer has {len(hashes)} ids, {target.name} has {len(own)}")
    differing = (hashes != own).nonzero()
    if len(differing):
        first = int(differing[0, 0])
        raise ForerunError(
            f"the drafter was made for another tokenizer: the first differing id is {first}, which is "
            f"{target.tokenizer.token_of(first)!r} in {target.name}; use a drafter trained for this target"
        )


def _golden_block(
    network: DSparkNetwork, target: TransformersTarget
) -> tuple[Int[Tensor, " positions"], Float[Tensor, "context layers hidden"], Float[Tensor, "slots hidden"]]:
    token_ids = torch.arange(_GOLDEN_POSITIONS, dtype=torch.int64) * 37 % target.vocab_size
    step = target.forward(
        token_ids[:-1].to(target.device), target.new_cache(), captured=network.config.captured_layers, num_logits=1
    )
    features = step.features.float().cpu()
    return token_ids, features, _states(network, target, token_ids, features)


@torch.inference_mode()
def _states(network: DSparkNetwork, target: TransformersTarget, token_ids: Tensor, features: Tensor) -> Tensor:
    context = network.context_layers(features[None].float(), 0)
    anchor = target.embedding_weight[token_ids[-1]].float().cpu().view(1, 1, -1)
    return network.block_hidden(context, anchor, torch.tensor([[len(token_ids) - 1]]), None)[0, 0]


def _check_golden(
    network: DSparkNetwork,
    target: TransformersTarget,
    token_ids: Tensor,
    features: Tensor,
    states: Tensor,
    folder: Path,
) -> None:
    step = target.forward(
        token_ids[:-1].to(target.device), target.new_cache(), captured=network.config.captured_layers, num_logits=1
    )
    own_features = step.features.float().cpu()
    for label, found, expected in (
        ("its target's features", own_features, features),
        ("its golden block", _states(network, target, token_ids, own_features), states),
    ):
        gap = float((found - expected).abs().max() / expected.abs().max())
        if not gap <= _GOLDEN_TOLERANCE:
            raise ForerunError(
                f"{folder}: {label} differ by {gap:.3f} (relative) from the stored ones; the weights or the target are "
                "not those of the training run"
            )
