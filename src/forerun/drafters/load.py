"""From a folder to a drafter."""

from __future__ import annotations

import json
import os
from pathlib import Path

from forerun.drafters.drafter import Drafter
from forerun.drafters.dspark.checkpoint import CONFIG_FILE, load_dspark
from forerun.errors import ForerunError
from forerun.models import TransformersTarget


def load_drafter(path: str | os.PathLike[str], target: TransformersTarget, *, optimize: bool = True) -> Drafter:
    """Load a trained drafter for ``target``.

    Args:
        path: folder that ``forerun train`` wrote.
        target: the model to draft for; tokenizer, shapes and a golden block are checked against it.
        optimize: lay linear weights out for narrow passes where the machine allows it.

    Raises:
        ForerunError: not a drafter folder, or not for this target.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise ForerunError(f"no drafter at {folder}; give a folder that forerun train wrote")
    config = folder / CONFIG_FILE
    if not config.is_file():
        raise ForerunError(f"{folder}: no {CONFIG_FILE}; give a folder that forerun train wrote")
    try:
        architecture = json.loads(config.read_text(encoding="utf-8")).get("architecture")
    except (ValueError, AttributeError) as error:  # no UTF-8, no JSON, no object
        raise ForerunError(f"{config}: not a JSON object ({error}); the file is damaged") from error
    if architecture != "dspark":
        raise ForerunError(f"{config}: unknown architecture {architecture!r}; this version reads dspark")
    return load_dspark(folder, target, optimize=optimize)
