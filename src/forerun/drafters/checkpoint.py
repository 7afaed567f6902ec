"""A trained drafter on disk: ``config.json``, ``provenance.json`` and ``model.safetensors``, read strictly.

Beside the weights the tensors hold the draft vocabulary, a hash of every target token (to name the first id of another
tokenizer), and a golden block: a text, the target's features of it and the logits of every slot, whose match is checked
on every load, so that a file that loads but computes something else (another norm, another rotary base, another layer)
is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from jaxtyping import Float, Int
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from forerun.drafters.architectures import CONFIGS, network_of
from forerun.drafters.block_inputs import BlockInputs
from forerun.drafters.config import DrafterConfig
from forerun.drafters.draft_vocabulary import DraftVocabulary
from forerun.drafters.network import Borrowed, DraftNetwork, PlainHead
from forerun.drafters.network_drafter import NetworkDrafter, ProposalPolicy, check_fits
from forerun.drafters.provenance import Provenance
from forerun.errors import ForerunError
from forerun.models import TransformersTarget

WEIGHTS_FILE = "model.safetensors"
CONFIG_FILE = "config.json"
PROVENANCE_FILE = "provenance.json"
_GOLDEN_CONTEXT = 8
_GOLDEN_TOLERANCE = 0.05  # of the golden values' largest: bfloat16 targets stay below it, wrong wiring does not
_WEIGHT_PREFIX = "network."


def save_drafter(
    folder: Path,
    network: DraftNetwork,
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
    rounded = network_of(network.config)
    rounded.load_state_dict({name: value.to(torch.bfloat16).float() for name, value in network.state_dict().items()})
    token_ids = torch.arange(_GOLDEN_CONTEXT + network.config.block_size, dtype=torch.int64) * 37 % target.vocab_size
    features = _golden_features(rounded, target, token_ids)
    logits = _golden_logits(rounded, vocabulary, target, token_ids, features)
    tensors = {_WEIGHT_PREFIX + name: value.to(torch.bfloat16) for name, value in rounded.state_dict().items()}
    tensors |= {
        "draft_vocabulary": vocabulary.target_ids.to(torch.int32),
        "tokenizer_hashes": target.tokenizer.token_hashes(),
        "golden.token_ids": token_ids,
        "golden.features": features,
        "golden.logits": logits,
    }
    write_folder(folder, network.config, provenance, tensors)


def write_folder(
    folder: Path,
    config: DrafterConfig,
    provenance: Provenance,
    tensors: dict[str, Tensor],
    *,
    more: Callable[[Path], None] | None = None,
) -> None:
    """Write a drafter's files whole or not at all.

    Args:
        folder: created, or replaced when it exists.
        config: shape of the drafter.
        provenance: how it came to be.
        tensors: of the weights file.
        more: puts further files into the folder that it is given.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
        fresh, former = Path(scratch) / "fresh", Path(scratch) / "former"
        fresh.mkdir()
        save_file({name: value.contiguous() for name, value in tensors.items()}, fresh / WEIGHTS_FILE)
        (fresh / CONFIG_FILE).write_text(config.model_dump_json(indent=2) + "\n", encoding="utf-8")
        (fresh / PROVENANCE_FILE).write_text(provenance.model_dump_json(indent=2) + "\n", encoding="utf-8")
        if more is not None:
            more(fresh)
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


def load_network_drafter(
    path: str | os.PathLike[str],
    target: TransformersTarget,
    *,
    policy: ProposalPolicy = ProposalPolicy.SAMPLE,
    optimize: bool = True,
) -> NetworkDrafter:
    """Load a trained drafter for ``target``.

    Args:
        path: folder that ``forerun train`` wrote.
        target: the model to draft for; tokenizer, shapes and a golden block are checked against it.
        policy: how drafts come out of their laws.
        optimize: lay linear weights out for narrow passes where the machine allows it.

    Raises:
        ForerunError: one line that names the missing folder, file, field or tensor, the first differing token id, or
            the mismatch.
    """
    network, vocabulary = load_network(Path(path), target)
    return NetworkDrafter(network, vocabulary, target, policy=policy, optimize=optimize)


def load_network(folder: Path, target: TransformersTarget) -> tuple[DraftNetwork, DraftVocabulary]:
    """Weights in float32 and the draft vocabulary of a checkpoint, to decode or to train on.

    Args:
        folder: written by ``save_drafter``.
        target: the model to draft for.

    Raises:
        ForerunError: see :func:`load_network_drafter`.
    """
    config = read_config(folder)
    read_provenance(folder)
    check_fits(config, target)
    tensors = read_tensors(folder / WEIGHTS_FILE)
    check_tokenizer(take_tensor(tensors, "tokenizer_hashes", folder), target)
    network = network_of(config)
    weights = {}
    for name, value in network.state_dict().items():
        weights[name] = take_tensor(tensors, _WEIGHT_PREFIX + name, folder, tuple(value.shape)).float()
    network.load_state_dict(weights)
    chosen = take_tensor(tensors, "draft_vocabulary", folder, (config.draft_vocab_size,))
    vocabulary = DraftVocabulary(chosen, config.target_vocab_size)
    layers, hidden, slots = len(config.captured_layers), config.hidden_size, config.block_size
    token_ids = take_tensor(tensors, "golden.token_ids", folder, (_GOLDEN_CONTEXT + slots,))
    features = take_tensor(tensors, "golden.features", folder, (_GOLDEN_CONTEXT + slots, layers, hidden))
    logits = take_tensor(tensors, "golden.logits", folder, (slots, config.draft_vocab_size))
    if tensors:
        raise ForerunError(f"{folder}: unknown tensor {sorted(tensors)[0]}; the file is of another version")
    own_features = _golden_features(network, target, token_ids)
    own_logits = _golden_logits(network, vocabulary, target, token_ids, own_features)
    for label, found, expected in (
        ("its target's features", own_features, features),
        ("its golden block's logits", own_logits, logits),
    ):
        check_golden(folder, label, found, expected)
    return network, vocabulary


def check_golden(folder: Path, label: str, found: Tensor, expected: Tensor) -> None:
    """Refuse a checkpoint that computes something else than it did when it was written.

    Raises:
        ForerunError: the values differ by more than bfloat16 explains.
    """
    gap = float((found - expected).abs().max() / expected.abs().max())
    if not gap <= _GOLDEN_TOLERANCE:
        raise ForerunError(
            f"{folder}: {label} differ by {gap:.3f} (relative) from the stored ones; the weights or the target are "
            "not those of the training run"
        )


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


def read_config(folder: Path) -> DrafterConfig:
    """Shape of the network that a checkpoint holds.

    Raises:
        ForerunError: no such folder or file, or not in the expected form.
    """
    if not folder.is_dir():
        raise ForerunError(f"no drafter at {folder}; give a folder that forerun train wrote")
    path = folder / CONFIG_FILE
    if not path.is_file():
        raise ForerunError(f"{folder}: no {CONFIG_FILE}; give a folder that forerun train wrote")
    try:
        architecture = json.loads(path.read_text(encoding="utf-8")).get("architecture")
    except (ValueError, AttributeError) as error:  # no UTF-8, no JSON, no object
        raise ForerunError(f"{path}: not a JSON object ({error}); the file is damaged") from error
    if architecture not in CONFIGS:
        raise ForerunError(f"{path}: unknown architecture {architecture!r}; this version reads {', '.join(CONFIGS)}")
    try:
        return CONFIGS[architecture].model_validate_json(_read_text(path))
    except ValidationError as error:
        raise ForerunError(f"{path}: {_first_problem(error)}") from error


def _read_text(path: Path) -> str:
    if not path.is_file():
        raise ForerunError(
            f"{path.parent}: no {path.name}; a drafter folder holds {CONFIG_FILE}, {PROVENANCE_FILE} and {WEIGHTS_FILE}"
        )
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ForerunError(f"{path}: not text ({error.reason} at byte {error.start}); the file is damaged") from error


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a weights file.

    Raises:
        ForerunError: missing or damaged.
    """
    if not path.is_file():
        raise ForerunError(f"{path.parent}: no {path.name}; the drafter's weights are missing")
    try:
        with safe_open(path, framework="pt") as stored:
            names: list[str] = stored.keys()
            return {name: stored.get_tensor(name) for name in names}
    except (SafetensorError, OSError) as error:
        raise ForerunError(f"{path}: corrupt or truncated ({error}); fetch it again") from error


def take_tensor(tensors: dict[str, Tensor], name: str, folder: Path, shape: tuple[int, ...] | None = None) -> Tensor:
    """Take a tensor out of those that were read.

    Raises:
        ForerunError: missing, or of another shape.
    """
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


def check_tokenizer(hashes: Int[Tensor, " vocab"], target: TransformersTarget) -> None:
    """Refuse a drafter of another tokenizer.

    Raises:
        ForerunError: naming the first id that differs.
    """
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


def _golden_features(
    network: DraftNetwork, target: TransformersTarget, token_ids: Int[Tensor, " positions"]
) -> Float[Tensor, "positions layers hidden"]:
    ids = token_ids.to(target.device)
    step = target.forward(ids, target.new_cache(), captured=network.config.captured_layers, num_logits=1)
    return step.features.float().cpu()


@torch.inference_mode()
def _golden_logits(
    network: DraftNetwork,
    vocabulary: DraftVocabulary,
    target: TransformersTarget,
    token_ids: Int[Tensor, " positions"],
    features: Float[Tensor, "positions layers hidden"],
) -> Float[Tensor, "slots draft_vocab"]:
    """One block in float32 on the CPU, behind the golden text's first tokens."""
    slots = network.config.block_size
    anchor = _GOLDEN_CONTEXT - 1
    inputs = BlockInputs(
        token_ids=token_ids[None],
        features=features[None],
        anchors=torch.tensor([[anchor]]),
        previous=token_ids[None, None, anchor : anchor + slots],
    )
    borrowed = Borrowed.of(target, vocabulary, dtype=torch.float32, device="cpu")
    heads = [PlainHead(weight) for weight in network.head_weights(borrowed)]
    return network.teach(inputs, borrowed).logits(heads)[0, 0]
