"""A mask-token drafter on disk: the generic folder, with the adapter as weights; a copy's model stands in ``model``.

The folder ``model`` is in transformers' form, so a copy can be a target, too. The golden values are logits behind a
text and its masks, in some columns of the vocabulary.
"""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from forerun.drafters.checkpoint import (
    WEIGHTS_FILE,
    check_golden,
    check_replaceable,
    check_tokenizer,
    read_config,
    read_provenance,
    read_tensors,
    take_tensor,
    write_folder,
)
from forerun.drafters.mask_token.config import MaskTokenConfig
from forerun.drafters.mask_token.drafter import MaskTokenModel
from forerun.drafters.mask_token.riding import MaskTokenRiders
from forerun.drafters.mask_token.student import MaskTokenStudent
from forerun.drafters.network_drafter import ProposalPolicy, check_fits
from forerun.drafters.provenance import Provenance
from forerun.errors import ForerunError
from forerun.models import TransformersTarget, load_target

MODEL_FOLDER = "model"
_PREFIX = "adapter."
_GOLDEN_TEXT = 8
_GOLDEN_COLUMNS = 1024


def save_mask_token(
    folder: Path, student: MaskTokenStudent, target: TransformersTarget, provenance: Provenance
) -> None:
    """Write a checkpoint folder whole or not at all; weights are rounded to bfloat16.

    Args:
        folder: created, or replaced when it exists.
        student: trained.
        target: the model it drafts for.
        provenance: how it came to be.

    Raises:
        ForerunError: something else stands in the folder's place.
    """
    check_replaceable(folder)
    weights = {name: value.to(torch.bfloat16).cpu() for name, value in student.adapter.state_dict().items()}
    model, inner = target, copy.deepcopy(student.model.model) if student.config.form == "copy" else None
    if inner is not None:
        nn.Module.to(inner, torch.bfloat16)
        same = copy.deepcopy(inner)
        nn.Module.to(same, target.dtype)
        model = TransformersTarget(same, None, name=student.model.name)
    rounded = MaskTokenStudent.reading(student.config, model, weights)
    token_ids = torch.arange(_GOLDEN_TEXT, dtype=torch.int64) * 37 % target.vocab_size
    tensors = {_PREFIX + name: value for name, value in weights.items()} | {
        "tokenizer_hashes": target.tokenizer.token_hashes(),
        "golden.token_ids": token_ids,
        "golden.logits": _golden_logits(rounded, token_ids),
    }

    def write_model(fresh: Path) -> None:
        if inner is not None:
            inner.save_pretrained(fresh / MODEL_FOLDER)
            target.tokenizer.save(fresh / MODEL_FOLDER)

    write_folder(folder, student.config, provenance, tensors, more=write_model)


def load_mask_token(
    folder: Path,
    target: TransformersTarget,
    *,
    policy: ProposalPolicy = ProposalPolicy.SAMPLE,
    optimize: bool = True,
) -> MaskTokenModel | MaskTokenRiders:
    """Load a trained mask token as a drafter for ``target``.

    Args:
        folder: written by ``save_mask_token``.
        target: the model to draft for; of the riders' form it has one extra token from now on.
        policy: how drafts come out of their laws.
        optimize: make a copy fast, see ``load_target``.

    Raises:
        ForerunError: one line that names the missing file, field or tensor, the first differing token id, or the
            mismatch.
    """
    student = load_mask_student(folder, target, optimize=optimize)
    block = student.config.block_size
    if student.config.form == "riders":
        return MaskTokenRiders(target, student.mask_id, max_horizon=block - 1, policy=policy)
    return MaskTokenModel(student.model, student.mask_id, target, max_horizon=block, policy=policy)


def load_mask_student(folder: Path, target: TransformersTarget, *, optimize: bool = True) -> MaskTokenStudent:
    """The model that reads masks: ``target`` itself, or the copy in the folder.

    Args:
        folder: written by ``save_mask_token``.
        target: the model to draft for.
        optimize: make a copy fast.

    Raises:
        ForerunError: see :func:`load_mask_token`.
    """
    config = read_config(folder)
    if not isinstance(config, MaskTokenConfig):
        raise ForerunError(f"{folder} holds a drafter of another kind, {config.architecture}")
    read_provenance(folder)
    check_fits(config, target)
    tensors = read_tensors(folder / WEIGHTS_FILE)
    check_tokenizer(take_tensor(tensors, "tokenizer_hashes", folder), target)
    token_ids = take_tensor(tensors, "golden.token_ids", folder, (_GOLDEN_TEXT,))
    golden = take_tensor(tensors, "golden.logits", folder)
    weights = {name: take_tensor(tensors, _PREFIX + name, folder) for name in MaskTokenStudent.weight_names(config)}
    if tensors:
        raise ForerunError(f"{folder}: unknown tensor {sorted(tensors)[0]}; the file is of another version")
    model = target
    if config.form == "copy":
        dtype = str(target.dtype).removeprefix("torch.")
        model = load_target(folder / MODEL_FOLDER, dtype=dtype, device=str(target.device), optimize=optimize)
    student = MaskTokenStudent.reading(config, model, weights)
    check_golden(folder, "its golden logits", _golden_logits(student, token_ids), golden)
    return student


def _golden_logits(student: MaskTokenStudent, token_ids: Int[Tensor, " positions"]) -> Float[Tensor, "slots columns"]:
    """What the last token and each mask say, as in decoding."""
    slots, model = student.config.block_size, student.model
    tokens = torch.cat([token_ids, torch.full((slots - 1,), student.mask_id)])
    logits = model.forward(tokens, model.new_cache(), num_logits=slots).logits
    return logits[:, :: -(-model.vocab_size // _GOLDEN_COLUMNS)].float().cpu()
