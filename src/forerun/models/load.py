"""From a name or folder to a target, with nothing guessed on the way."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from forerun.environment import keep_freed_memory
from forerun.errors import ForerunError
from forerun.models.embedded import EMBEDDED_TARGET, embedded_folder
from forerun.models.quiet import quiet_transformers
from forerun.models.tokenizer import Tokenizer
from forerun.models.transformers_target import TransformersTarget

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}


def load_target(
    name_or_path: str | os.PathLike[str] = EMBEDDED_TARGET.name,
    *,
    dtype: str = "float32",
    device: str = "cpu",
    optimize: bool = True,
) -> TransformersTarget:
    """Load a decoder-only causal language model as a target.

    Args:
        name_or_path: ``smollm2-135m`` (embedded, downloaded once), a folder in transformers' format, or a hub id.
        dtype: ``float32``, ``bfloat16`` or ``float64``.
        device: a torch device, such as ``cpu`` or ``cuda:0``.
        optimize: make narrow verification passes fast: attention that copies no keys; on a CPU linear weights laid out
            for a few rows and freed memory kept by the process; on CUDA narrow passes recorded as graphs. Greedy ids
            stay those of eager torch, but for near-ties.

    Raises:
        ForerunError: unknown name, unreadable or incomplete checkpoint, recurrent architecture.

    Example:
        >>> from forerun import load_target
        >>> target = load_target("smollm2-135m")  # doctest: +SKIP
        >>> target.num_layers  # doctest: +SKIP
        30
    """
    name = os.fspath(name_or_path)
    if dtype not in _DTYPES:
        raise ForerunError(f"unknown dtype {dtype!r}; choose one of {', '.join(_DTYPES)}")
    if optimize and torch.device(device).type == "cpu":
        keep_freed_memory()
    source = str(embedded_folder()) if name == EMBEDDED_TARGET.name else name
    with quiet_transformers():
        model = _load_model(name, source, _DTYPES[dtype])
        nn.Module.to(model, device)
        tokenizer = _load_tokenizer(name, source, int(model.config.get_text_config().vocab_size))
    return TransformersTarget(model, tokenizer, name=name, optimize=optimize)


def _load_model(name: str, source: str, dtype: torch.dtype) -> PreTrainedModel:
    folder = Path(source)
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise ForerunError(
            f"{name}: the folder has no config.json; give a folder that transformers' save_pretrained wrote"
        )
    try:
        AutoConfig.from_pretrained(source)
    except (OSError, ValueError) as error:
        if folder.is_dir():
            raise ForerunError(f"{name}: the configuration cannot be read ({_first_line(error)})") from error
        raise ForerunError(
            f"unknown model {name!r}: not the embedded {EMBEDDED_TARGET.name!r}, not a model folder, and no model hub "
            f"served it ({_first_line(error)})"
        ) from error
    try:
        # mismatched sizes are "ignored" so that they come back by name; they are refused below
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            source, dtype=dtype, output_loading_info=True, ignore_mismatched_sizes=True
        )
        model, report = loaded
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ForerunError(f"{name}: the checkpoint cannot be read ({_first_line(error)}); fetch it again") from error
    mismatched = [f"{key} is {tuple(found)} and not {tuple(asked)}" for key, found, asked in report["mismatched_keys"]]
    for problem, keys in (("missing keys", list(report["missing_keys"])), ("other shapes", mismatched)):
        if keys:
            raise ForerunError(f"{name}: the checkpoint has {problem}: {', '.join(sorted(keys)[:3])}; fetch it again")
    assert isinstance(model, PreTrainedModel)
    if dtype == torch.float64:
        model.set_experts_implementation("eager")  # the grouped kernels of mixture-of-experts layers refuse float64
    return model


def _load_tokenizer(name: str, source: str, vocab_size: int) -> Tokenizer:
    try:
        return Tokenizer(AutoTokenizer.from_pretrained(source), vocab_size)
    except Exception as error:  # the tokenizers library raises bare exceptions for files of another form
        raise ForerunError(f"{name}: its tokenizer cannot be read ({_first_line(error)})") from error


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
