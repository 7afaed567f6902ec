"""What the target thinks of its own answers, captured once and read in every epoch.

For each token: outputs of the captured layers, the final hidden state, and the logarithm of the softmax's denominator.
With these, the target's law on any subset of the vocabulary is one small matrix product. Shards are written whole or
not at all, so a killed run goes on with the first one that is missing.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from rich.progress import Progress
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from forerun.errors import ForerunError
from forerun.models import TransformersTarget
from forerun.training.jsonl import numbered_jsonl
from forerun.training.whole_file import write_whole

_MANIFEST = "manifest.json"
MATMUL_PRECISIONS = ("highest", "high", "medium")
# Logits recomputed from the hidden state, in nats; soft-capped heads miss by more.
_HEAD_TOLERANCE = 1e-2
_HEAD_TOLERANCE_BFLOAT16 = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureConfig:
    """What is captured.

    Attributes:
        captured_layers: 0-based target layers whose outputs are kept.
        max_length: longer sequences are cut to this many tokens.
        rows_per_shard: answers in one file.
        matmul_precision: ``highest`` is float32 throughout; ``medium`` lets products run on bfloat16 units.
    """

    captured_layers: tuple[int, ...]
    max_length: int = 512
    rows_per_shard: int = 32
    matmul_precision: str = "highest"

    def __post_init__(self) -> None:
        """Refuse unknown words."""
        if self.matmul_precision not in MATMUL_PRECISIONS:
            raise ForerunError(
                f"matmul_precision is {self.matmul_precision!r}; choose one of {', '.join(MATMUL_PRECISIONS)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureRow:
    """One sequence with what the target computed on it; half precision on disk and in memory."""

    job: str
    prompt_length: int
    token_ids: Int[Tensor, " length"]
    features: Float[Tensor, "length layers hidden"]
    final_hidden: Float[Tensor, "length hidden"]
    log_normaliser: Float[Tensor, " length"]


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def predicted_bytes(num_tokens: int, hidden_size: int, captured_layers: int) -> int:
    """Size of the shards: half-precision features and final state, and a few numbers a token."""
    return num_tokens * ((captured_layers + 1) * hidden_size * 2 + 8)


def capture_features(
    target: TransformersTarget, answers: Path, folder: Path, config: FeatureConfig, *, progress: Progress
) -> int:
    """Run the target over every row of ``answers`` and store what training needs; returns the number of rows.

    Args:
        target: the model that wrote the answers.
        answers: file written by ``regenerate``.
        folder: where the shards go.
        config: what to keep.
        progress: the caller's bars.

    Raises:
        ForerunError: the folder belongs to other data or settings, or the target's head is not a plain matrix product.
    """
    rows = _answers(answers)
    if not rows:
        raise ForerunError(f"{answers}: no answer of two tokens or more; regenerate first")
    manifest = {
        "data_sha256": file_sha256(answers),
        "target": target.fingerprint,
        "tokenizer": target.tokenizer.fingerprint,
        "dtype": str(target.dtype),
        "rows": len(rows),
        **{key: list(value) if isinstance(value, tuple) else value for key, value in asdict(config).items()},
    }
    _claim(folder, manifest)
    torch.set_float32_matmul_precision(config.matmul_precision)
    starts = range(0, len(rows), config.rows_per_shard)
    task = progress.add_task("Features", total=len(rows))
    for shard, start in enumerate(starts):
        chosen = rows[start : start + config.rows_per_shard]
        path = _shard_path(folder, shard)
        if not path.is_file():
            _write_shard(target, chosen, path, config)
        progress.advance(task, len(chosen))
    return len(rows)


def read_features(folder: Path, *, layers: tuple[int, ...] | None = None) -> list[FeatureRow]:
    """All rows of a folder that ``capture_features`` finished, in order.

    Args:
        folder: of the shards.
        layers: those of the captured layers that are wanted, in this order; ``None`` for all.

    Raises:
        ForerunError: no such folder, a shard is missing or damaged, or its rows do not add up.
    """
    manifest = read_manifest(folder)
    captured, expected = manifest["captured_layers"], manifest["rows"]
    columns = [captured.index(layer) for layer in (captured if layers is None else layers)]
    rows = [row for shard in sorted(folder.glob("shard-*.safetensors")) for row in _read_shard(shard, columns)]
    if len(rows) != expected:
        raise ForerunError(
            f"{folder} holds {len(rows)} of {expected} rows; run forerun data prepare again, it goes on where it was"
        )
    return rows


def read_manifest(folder: Path) -> dict[str, Any]:
    """Settings with which the folder was written.

    Raises:
        ForerunError: no such folder.
    """
    path = folder / _MANIFEST
    if not path.is_file():
        raise ForerunError(f"{folder}: no captured features; run forerun data prepare first")
    manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return manifest


def _answers(path: Path) -> list[dict[str, Any]]:
    """Rows that a drafter can learn from: two answer tokens make one block."""
    rows = numbered_jsonl(path)
    for number, row in rows:
        missing = [field for field in ("job", "prompt_ids", "answer_ids") if field not in row]
        if missing:
            raise ForerunError(f"{path}, line {number}: field {missing[0]!r} is missing; run forerun data regenerate")
    return [row for _, row in rows if len(row["answer_ids"]) >= 2]


def _claim(folder: Path, manifest: dict[str, Any]) -> None:
    path = folder / _MANIFEST
    if path.is_file():
        found = read_manifest(folder)
        differing = [key for key in manifest if found.get(key) != manifest[key]]
        if differing:
            raise ForerunError(f"{folder} holds features of another {differing[0]}; give another folder or delete it")
    else:
        write_whole(path, json.dumps(manifest, indent=2) + "\n")


def _shard_path(folder: Path, shard: int) -> Path:
    return folder / f"shard-{shard:05d}.safetensors"


def _write_shard(target: TransformersTarget, rows: list[dict[str, Any]], path: Path, config: FeatureConfig) -> None:
    columns: dict[str, list[Tensor]] = {"token_ids": [], "features": [], "final_hidden": [], "log_normaliser": []}
    for row in rows:
        token_ids = torch.tensor([*row["prompt_ids"], *row["answer_ids"]])[: config.max_length]
        step = target.teach(token_ids.to(target.device), captured=config.captured_layers)
        _check_head(target, step.logits, step.final_hidden)
        columns["token_ids"].append(token_ids.to(torch.int32))
        columns["features"].append(_half(step.features))
        columns["final_hidden"].append(_half(step.final_hidden))
        columns["log_normaliser"].append(step.logits.float().logsumexp(dim=-1).cpu())
    tensors = {name: torch.cat(parts).contiguous() for name, parts in columns.items()}
    tensors["lengths"] = torch.tensor([len(part) for part in columns["token_ids"]])
    tensors["prompt_lengths"] = torch.tensor([len(row["prompt_ids"]) for row in rows])
    part = path.with_suffix(".part")
    save_file(tensors, part, metadata={"jobs": json.dumps([row["job"] for row in rows])})
    os.replace(part, path)


def _half(values: Tensor) -> Tensor:
    halved = values.to(torch.float16).cpu()
    if not bool(torch.isfinite(halved).all()):
        raise ForerunError("a captured feature is too large for half precision; choose other layers")
    return halved


def _check_head(target: TransformersTarget, logits: Tensor, final_hidden: Tensor) -> None:
    """One row is enough: a head that does more than a matrix product (soft-capping, scaling) does it everywhere."""
    recomputed = target.head_weight.float() @ final_hidden[-1].float()
    gap = float((recomputed - logits[-1].float()).abs().max())
    narrow = target.dtype == torch.bfloat16 or torch.get_float32_matmul_precision() != "highest"
    allowed = _HEAD_TOLERANCE_BFLOAT16 if narrow else _HEAD_TOLERANCE
    if not gap <= allowed:
        raise ForerunError(
            f"{target.name}: its logits differ by {gap:.2g} from head times final state (scaling, soft-capping); "
            "training features for such heads are not supported yet"
        )


def _read_shard(path: Path, columns: list[int]) -> list[FeatureRow]:
    try:
        tensors = load_file(path)
    except SafetensorError as error:
        raise ForerunError(
            f"{path}: corrupt or truncated ({error}); delete the file and run forerun data prepare again"
        ) from error
    jobs = json.loads(_metadata(path)["jobs"])
    lengths = tensors["lengths"].tolist()
    if sum(lengths) != len(tensors["token_ids"]) or len(jobs) != len(lengths):
        raise ForerunError(f"{path}: rows do not add up; delete the file and run forerun data prepare again")
    tensors["features"] = tensors["features"][:, columns]
    pieces = {
        name: tensors[name].split(lengths) for name in ("token_ids", "features", "final_hidden", "log_normaliser")
    }
    return [
        FeatureRow(
            job=job,
            prompt_length=int(tensors["prompt_lengths"][index]),
            token_ids=pieces["token_ids"][index].to(torch.int64),
            features=pieces["features"][index],
            final_hidden=pieces["final_hidden"][index],
            log_normaliser=pieces["log_normaliser"][index],
        )
        for index, job in enumerate(jobs)
    ]


def _metadata(path: Path) -> dict[str, str]:
    with path.open("rb") as source:
        header_length = int.from_bytes(source.read(8), "little")
        header: dict[str, Any] = json.loads(source.read(header_length))
    metadata: dict[str, str] = header["__metadata__"]
    return metadata
