"""What every result says of where it comes from: code, command, machine, target."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import torch

from forerun import environment
from forerun.models import TransformersTarget


def study_origin(*, format: str, command: str) -> dict[str, Any]:
    """The first fields of a result that no model took part in; call it before computing.

    Args:
        format: name and version of the result's format.
        command: what was typed.
    """
    return {
        "format": format,
        "forerun_version": environment.library_versions()["forerun"],
        "commit": environment.source_commit(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
        "machine": {"cpu": environment.cpu_name(), "cores": environment.num_cores()},
    }


def result_origin(target: TransformersTarget, *, format: str, command: str) -> dict[str, Any]:
    """The first fields of a result.

    Call it before measuring: the checkout may move on while this process runs the old code.

    Args:
        target: the model.
        format: name and version of the result's format.
        command: what was typed.
    """
    origin = study_origin(format=format, command=command)
    machine = {
        "cpu": origin["machine"]["cpu"],
        "device": str(target.device),
        "cores": origin["machine"]["cores"],
        "threads": torch.get_num_threads(),
        "torch_version": torch.__version__.partition("+")[0],
        "dtype": str(target.dtype).removeprefix("torch."),
    }
    return {**origin, "machine": machine, "target": {"name": target.name, "sha256": target.fingerprint}}
