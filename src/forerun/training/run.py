"""One training run from captured features to a drafter folder."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import torch
from rich.progress import Progress

from forerun import environment
from forerun.drafters import (
    DrafterConfig,
    DraftVocabulary,
    MaskTokenConfig,
    Provenance,
    check_replaceable,
    save_drafter,
    save_mask_token,
)
from forerun.errors import ForerunError
from forerun.models import TransformersTarget
from forerun.training.features import file_sha256, read_features, read_manifest
from forerun.training.history import read_history
from forerun.training.jsonl import read_jsonl
from forerun.training.mask_token import Distilled, distill
from forerun.training.trainer import TrainConfig, TrainResult, split_rows, train


def train_drafter(
    target: TransformersTarget,
    features: Path,
    answers: Path,
    drafter_config: DrafterConfig,
    config: TrainConfig,
    output: Path,
    run_folder: Path,
    *,
    command: str,
    resume: bool,
    progress: Progress,
) -> TrainResult | Distilled:
    """Train a drafter and write it with its provenance.

    Args:
        target: the model it drafts for.
        features: folder of ``capture_features``.
        answers: the file they were captured from.
        drafter_config: shape.
        config: of the run.
        output: drafter folder to write at the end.
        run_folder: state and log on the way.
        command: what was typed, for the provenance.
        resume: go on with the state in ``run_folder``.
        progress: the caller's bars.

    Raises:
        ForerunError: features of another target, of other answers or with other layers, something else in ``output``'s
            place, or see :func:`train`.
    """
    check_replaceable(output)
    manifest = read_manifest(features)
    if manifest["target"] != target.fingerprint:
        raise ForerunError(f"{features} was captured from another target than {target.name}; run forerun data prepare")
    missing = [layer for layer in drafter_config.captured_layers if layer not in manifest["captured_layers"]]
    if missing:
        raise ForerunError(
            f"{features} holds layers {manifest['captured_layers']}, the drafter also reads {missing}; "
            f"run forerun data prepare --drafter {drafter_config.architecture} into another folder"
        )
    data = read_jsonl(answers)
    if file_sha256(answers) != manifest["data_sha256"]:
        raise ForerunError(f"{features} was captured from another file than {answers}; run forerun data prepare")
    earlier = read_history(features)["commands"]
    rows = read_features(features, layers=drafter_config.captured_layers)
    training, _ = split_rows(rows, config.validation_share)
    counts = torch.bincount(
        torch.cat([row.token_ids[row.prompt_length :] for row in training]), minlength=target.vocab_size
    )
    vocabulary = DraftVocabulary.most_frequent(counts, drafter_config.draft_vocab_size)
    result: TrainResult | Distilled
    if isinstance(drafter_config, MaskTokenConfig):
        result = distill(target, rows, drafter_config, config, run_folder, resume=resume, progress=progress)
    else:
        result = train(target, rows, drafter_config, vocabulary, config, run_folder, resume=resume, progress=progress)
    provenance = Provenance(
        commands=(*earlier, command),
        data_sha256=manifest["data_sha256"],
        data_rows=len(rows),
        data_tokens=sum(max(0, len(row.token_ids) - row.prompt_length) for row in rows),
        data_licenses=dict(Counter(row["license"] for row in data)),
        data_sources=dict(Counter(row["source"] for row in data)),
        target_name=target.name,
        target_fingerprint=target.fingerprint,
        tokenizer_fingerprint=target.tokenizer.fingerprint,
        loss=f"{config.objective.describe()}; position weights {config.weights_name}",
        steps=config.steps,
        anchors=result.anchors,
        seed=config.seed,
        seconds=result.seconds,
        vocabulary_coverage=vocabulary.coverage(counts),
        validation=result.validation,
        versions=environment.library_versions(),
        machine=f"{environment.cpu_name()}, {torch.get_num_threads()} of {environment.num_cores()} cores",
        commit=environment.source_commit(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    if isinstance(result, Distilled):
        save_mask_token(output, result.student, target, provenance)
    else:
        save_drafter(output, result.network, vocabulary, target, provenance)
    return result
