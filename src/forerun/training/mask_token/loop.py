"""The loop that teaches a model what a mask token stands for.

The student proposes: the most probable token of each of its k positions, of random blocks and a random k. The frozen
target, as teacher, reads these proposals, each behind the student's own ones before it, and the student learns from
what the teacher says there. Steps are functions of (data, seed, step number), as in the other trainer.

Behind a proposal that the teacher would not write, greedy verification looks at nothing, and neither does this loop
unless it is asked to (`Prefix`). An untrained student proposes the same token everywhere. The teacher answers it with
the same token everywhere, so labels behind it say nothing of the text, and low-rank updates learn to ignore it.

References:
    Kirchenbauer et al. 2026, arXiv 2602.06019; its loss is the cross-entropy against the teacher's argmax ("hard
    teacher"), here the objective ``ce-argmax``. There every position counts, whatever stands before it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final

import torch
from jaxtyping import Bool, Float, Int
from rich.progress import Progress
from torch import Tensor

from forerun import losses
from forerun.drafters import DraftVocabulary, MaskTokenConfig, MaskTokenStudent
from forerun.errors import ForerunError
from forerun.losses import AcceptanceHistory, MaskedSum, Moment, Need
from forerun.models import TransformersTarget
from forerun.training.features import FeatureRow
from forerun.training.jsonl import append_jsonl
from forerun.training.mask_token.spans import Spans
from forerun.training.run_state import LOG_FILE, resume_state, run_identity, save_state
from forerun.training.trainer import (
    POSITION_WEIGHTS,
    TrainConfig,
    anchors_of,
    learning_rate_at,
    optimizer_of,
    rows_of,
    settings_of,
    split_rows,
)

Prefix = Literal["accepted", "student", "text"]
"""Whose tokens stand before a position that is scored: the student's own, as far as the teacher's most probable tokens
are the same (``accepted``) or all of them (``student``), or those of the text.
"""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Distilled:
    """A finished run."""

    student: MaskTokenStudent
    validation: dict[str, float]
    anchors: int
    seconds: float


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scored:
    """Blocks, the student's answer and the teacher's.

    Attributes:
        student_logits: carry the gradient.
        teacher_log_probs: of the same places, behind the tokens that ``prefix`` says.
        labels: token that follows at each place: the text's, or the student's own.
        valid: places that count.
    """

    student_logits: Float[Tensor, "rows blocks slots vocab"]
    teacher_log_probs: Float[Tensor, "rows blocks slots vocab"]
    labels: Int[Tensor, "rows blocks slots"]
    valid: Bool[Tensor, "rows blocks slots"]


def distill(
    target: TransformersTarget,
    rows: list[FeatureRow],
    drafter_config: MaskTokenConfig,
    config: TrainConfig,
    run_folder: Path,
    *,
    resume: bool,
    progress: Progress,
) -> Distilled:
    """Train a mask token, saving the state on the way.

    Args:
        target: the teacher; of the riders' form also the model that reads the mask.
        rows: regenerated answers; their features are not looked at.
        drafter_config: shape of the drafter.
        config: of the run; there is no confidence head and no loss from hidden states here.
        run_folder: state and log.
        resume: go on from the state in ``run_folder``.
        progress: the caller's bars.

    Raises:
        ForerunError: the objective needs tokens that the text alone has, no held-out answer is longer than a block,
            the run cannot be resumed, or the gradient is not finite.
    """
    prefix = prefix_of(config)
    if prefix != "text" and not config.objective.needs <= {Need.TARGET_LAW}:
        raise ForerunError(
            f"{config.objective.title} needs more than the target's laws, which is all there is behind a student's own "
            "tokens; choose such a loss (ce-argmax, tvp, kl) or train on the text"
        )
    torch.set_float32_matmul_precision(config.matmul_precision)
    training, held_out = split_rows(
        [row for row in rows if len(row.token_ids) - row.prompt_length >= 2], config.validation_share
    )
    if all(len(row.token_ids) - row.prompt_length <= drafter_config.block_size for row in held_out):
        raise ForerunError(
            f"none of {len(held_out)} held-out answers is longer than a block of {drafter_config.block_size} tokens, "
            "so none can show how far drafts get; add data or draft fewer tokens"
        )
    everything = DraftVocabulary(torch.arange(target.vocab_size), target.vocab_size)
    identity = run_identity(settings_of(config), drafter_config, everything, target, rows)
    student = MaskTokenStudent.of(drafter_config, target)
    student.initialise(generator=torch.Generator().manual_seed(config.seed))
    trained = student.trained
    optimizer = optimizer_of(trained, config)
    history = AcceptanceHistory()
    start, seconds = resume_state(trained, optimizer, history, identity, run_folder, resume)
    task = progress.add_task("Training", total=config.steps, completed=start)
    first_slot = drafter_config.first_slot
    anchors = sum(anchors_of(training, config, step, first_slot=first_slot) for step in range(start))
    began = time.perf_counter()
    for step in range(start, config.steps):
        generator = torch.Generator().manual_seed((config.seed << 32) + step)
        slots = int(torch.randint(2, drafter_config.block_size + 1, (), generator=generator))
        chosen = rows_of(training, config, step)
        spans = Spans.of(chosen, blocks=config.blocks_per_row, slots=slots, generator=generator, first_slot=first_slot)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate_at(config, step)
        optimizer.zero_grad(set_to_none=True)
        scored = score(student, target, spans, prefix=prefix)
        metrics, acceptances = _backward(scored, drafter_config.block_size, config, step, history.settled)
        norm = torch.nn.utils.clip_grad_norm_(trained.parameters(), config.clip)
        if not bool(torch.isfinite(norm)):
            raise ForerunError(
                f"step {step}: the gradient is not finite (loss {metrics['loss']:.4g}); lower the learning rate"
            )
        optimizer.step()
        history.observe(acceptances)
        anchors += int(spans.used.sum())
        line = {"step": step, "slots": slots, "gradient_norm": float(norm), **metrics}
        append_jsonl(run_folder / LOG_FILE, [line])
        progress.update(task, advance=1, description=f"Training (1 - TV {metrics['acceptance']:.3f})")
        if (step + 1) % config.save_every == 0 or step + 1 == config.steps:
            spent = seconds + time.perf_counter() - began
            save_state(trained, optimizer, history, identity, step + 1, spent, run_folder)
    total_seconds = seconds + time.perf_counter() - began
    return Distilled(
        student=student, validation=validate_masks(student, target, held_out), anchors=anchors, seconds=total_seconds
    )


def prefix_of(config: TrainConfig) -> Prefix:
    """What the run asks for; by itself the student's own tokens as far as they are accepted."""
    if config.prefix == "text":
        return "text"
    return "student" if config.prefix == "student" else "accepted"


def score(student: MaskTokenStudent, teacher: TransformersTarget, spans: Spans, *, prefix: Prefix) -> Scored:
    """One pass of the student and one of the teacher.

    What the student says after a stop of its own is never decoded, so it does not count. Nor does slot 0 of riders,
    which is the target's own row. With ``accepted``, a position counts if every proposal before it is what the teacher
    holds most probable there: if greedy decoding would come that far.

    Args:
        student: reads masks.
        teacher: reads tokens.
        spans: blocks.
        prefix: whose tokens the teacher reads, and what counts behind them.
    """
    logits = spans.logits(student.model, student.mask_id)
    if prefix == "text":
        labels, valid, later = spans.labels, spans.valid, spans.previous[:, :, 1:]
    else:
        labels = logits.detach().argmax(-1).cpu()
        stops = torch.isin(labels, torch.tensor(teacher.stop_ids, dtype=torch.int64))
        going_on = (stops.cumsum(-1) - stops.long()) == 0
        valid = spans.used[:, :, None] & going_on
        later = labels[:, :, :-1]
    with torch.no_grad():
        teacher_log_probs = torch.log_softmax(spans.logits(teacher, later).float(), dim=-1)
    if prefix == "accepted":
        taken = losses.agreed_prefix(labels, teacher_log_probs.cpu())
        valid[:, :, 1:] &= taken[:, :, :-1]
    valid = valid & (torch.arange(valid.shape[-1]) >= student.config.first_slot)
    device = logits.device
    return Scored(
        student_logits=logits, teacher_log_probs=teacher_log_probs, labels=labels.to(device), valid=valid.to(device)
    )


def _backward(
    scored: Scored, block_size: int, config: TrainConfig, step: int, settled: float
) -> tuple[dict[str, float], MaskedSum]:
    """Gradients of one update, numbers for the log, and the batch's acceptance."""
    acceptance = losses.acceptance(scored.teacher_log_probs, scored.student_logits)
    acceptances = losses.masked_sum(acceptance, scored.valid)
    by_place = losses.masked_sum(acceptance, scored.valid, by_position=True)
    moment = Moment(step=step, total_steps=config.steps, position_acceptance=by_place.mean(), settled=settled)
    blocks = losses.Blocks(
        target_log_probs=scored.teacher_log_probs,
        draft_logits=scored.student_logits,
        labels=scored.labels,
        mask=scored.valid,
    )
    weights = POSITION_WEIGHTS[config.weights_name](block_size)[: scored.valid.shape[-1]]
    kept = scored.valid & config.objective.kept(blocks)
    total = losses.masked_sum(config.objective.values(blocks, moment), kept, weights.to(kept.device))
    if int(total.count) == 0:  # every student stopped before its first draft
        return {"loss": 0.0, "acceptance": 0.0, "valid": 0}, acceptances
    loss = total.mean()
    loss.backward()
    metrics = {
        "loss": float(loss.detach()),
        "acceptance": float(acceptances.mean()),
        "valid": int(total.count),
        "settled": settled,
        **config.objective.measures(moment),
    }
    return metrics, acceptances


@torch.no_grad()
def validate_masks(
    student: MaskTokenStudent, teacher: TransformersTarget, rows: list[FeatureRow], *, blocks: int = 16
) -> dict[str, float]:
    """Teacher-forced metrics on rows that training never saw, over evenly spaced anchors.

    Args:
        student: reads masks.
        teacher: the target.
        rows: held-out answers.
        blocks: anchors per row at most.

    Returns:
        By name: ``acceptance_k``, mean acceptance of the k-th draft; ``predicted_tau``, one plus the unbiased expected
        acceptance length of token-level verification, and ``mean_accepted_prefix``, leading drafts whose most probable
        token is the text's, both over blocks whose every slot has a label. Drafts are slots 1 and later for riders.
    """
    first = student.config.first_slot
    per_draft: list[Tensor] = []
    valid_drafts: list[Tensor] = []
    lengths: list[Tensor] = []
    agreed: list[Tensor] = []
    for row in rows:
        spans = Spans.of(
            [row], blocks=blocks, slots=student.config.block_size, generator=None, first_slot=student.config.first_slot
        )
        scored = score(student, teacher, spans, prefix="text")
        teacher_rows, student_rows = scored.teacher_log_probs[:, :, first:], scored.student_logits[:, :, first:]
        valid = scored.valid[:, :, first:]
        acceptance = losses.acceptance(teacher_rows, student_rows)
        per_draft.append(acceptance.flatten(0, 1))
        valid_drafts.append(valid.flatten(0, 1))
        whole = valid.all(dim=-1)
        labels = scored.labels[:, :, first:][whole]
        ratios = losses.token_acceptance(labels, teacher_rows[whole], student_rows[whole])
        lengths.append(1.0 + losses.expected_acceptance_length(acceptance[whole], ratios))
        agreed.append(losses.agreed_prefix(labels, student_rows[whole]).sum(-1).float())
    means = losses.masked_sum(torch.cat(per_draft), torch.cat(valid_drafts), by_position=True).mean()
    metrics = {f"acceptance_{index + 1}": float(alpha) for index, alpha in enumerate(means)}
    metrics["predicted_tau"] = float(torch.cat(lengths).mean())
    metrics["mean_accepted_prefix"] = float(torch.cat(agreed).mean())
    return metrics
