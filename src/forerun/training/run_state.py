"""What a training run keeps on disk: its state, replaced whole, and a log that a resume cuts back to the state."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import nn

from forerun.drafters import DrafterConfig, DraftVocabulary
from forerun.errors import ForerunError
from forerun.losses import AcceptanceHistory
from forerun.models import TransformersTarget
from forerun.training.features import FeatureRow
from forerun.training.jsonl import drop_torn_line, read_jsonl
from forerun.training.whole_file import write_whole

STATE_FILE = "state.pt"
LOG_FILE = "log.jsonl"


def run_identity(
    settings: dict[str, Any],
    drafter_config: DrafterConfig,
    vocabulary: DraftVocabulary,
    target: TransformersTarget,
    rows: list[FeatureRow],
) -> dict[str, str]:
    """What must not change between the parts of one run.

    Args:
        settings: of the run, as plain data.
        drafter_config: shape of the drafter.
        vocabulary: tokens it can draft.
        target: the model it drafts for.
        rows: training and validation data.
    """
    data = hashlib.sha256()
    for row in rows:
        data.update(f"{row.job} {row.prompt_length} {row.token_ids.tolist()}".encode())
    return {
        "settings": json.dumps(settings, sort_keys=True),
        "drafter shape": drafter_config.model_dump_json(),
        "draft vocabulary": vocabulary.fingerprint,
        "target": target.fingerprint,
        "data": data.hexdigest(),
    }


def save_state(
    network: nn.Module,
    optimizer: torch.optim.AdamW,
    history: AcceptanceHistory,
    identity: dict[str, str],
    step: int,
    seconds: float,
    folder: Path,
) -> None:
    """Replace the saved state whole."""
    state = {
        "network": network.state_dict(),
        "optimizer": optimizer.state_dict(),
        "acceptance": history.state_dict(),
        "step": step,
        "seconds": seconds,
        "identity": identity,
    }
    part = folder / f"{STATE_FILE}.part"
    torch.save(state, part)
    os.replace(part, folder / STATE_FILE)


def resume_state(
    network: nn.Module,
    optimizer: torch.optim.AdamW,
    history: AcceptanceHistory,
    identity: dict[str, str],
    folder: Path,
    resume: bool,
) -> tuple[int, float]:
    """Take network, optimiser and acceptance history up where the saved state left them.

    Args:
        network: filled from the state.
        optimizer: likewise.
        history: likewise.
        identity: of the run that wants to go on.
        folder: of the run; made when there is none.
        resume: whether a saved state may be used.

    Returns:
        Updates made and seconds spent so far; zeros without a state.

    Raises:
        ForerunError: a state exists and ``resume`` is false, or it is damaged or of another run.
    """
    path = folder / STATE_FILE
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / LOG_FILE).unlink(missing_ok=True)
        return 0, 0.0
    if not resume:
        raise ForerunError(
            f"{folder} holds a run already; pass --resume to go on with it, or give another --run folder"
        )
    try:
        state: dict[str, Any] = torch.load(path, weights_only=True)
        saved = dict(state["identity"])
        history.load_state_dict(state["acceptance"])
    except (RuntimeError, EOFError, UnpicklingError, LookupError, TypeError, ValueError) as error:
        raise ForerunError(f"{path}: corrupt or truncated; delete the file to start again") from error
    differing = [part for part in identity if saved.get(part) != identity[part]]
    if differing:
        raise ForerunError(
            f"{folder} holds a run with other {differing[0]}; repeat the run's own to resume, or give another --run "
            "folder"
        )
    network.load_state_dict(state["network"])
    optimizer.load_state_dict(state["optimizer"])
    _trim_log(folder / LOG_FILE, state["step"])
    return int(state["step"]), float(state["seconds"])


def _trim_log(path: Path, step: int) -> None:
    """Steps after the saved state are made again; their lines would stand twice."""
    drop_torn_line(path)
    kept = [row for row in read_jsonl(path) if row["step"] < step] if path.is_file() else []
    write_whole(path, "".join(json.dumps(row) + "\n" for row in kept))
