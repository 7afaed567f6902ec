"""The loop that fits a drafter to its target.

Every step is a function of (data, seed, step number): which rows, which anchors, which learning rate, which beta. So a
run that is killed and resumed ends in the same weights, bit for bit on a CPU, and no cursor or random state is stored.
"""

from __future__ import annotations

import hashlib
import math
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from rich.progress import Progress
from torch import Tensor, nn

from forerun import losses
from forerun.drafters import DrafterConfig, DraftNetwork, DraftVocabulary, IndependentNetwork, network_of
from forerun.errors import ForerunError
from forerun.losses import TVP, AcceptanceHistory, MaskedSum, Objective
from forerun.models import TransformersTarget
from forerun.training.batch_loss import DRAFT_LAWS, Scorer
from forerun.training.blocks import BlockBatch, anchor_range, make_batch
from forerun.training.features import MATMUL_PRECISIONS, FeatureRow
from forerun.training.jsonl import append_jsonl
from forerun.training.run_state import LOG_FILE, resume_state, run_identity, save_state
from forerun.training.teacher import Teacher
from forerun.training.validation import validate

POSITION_WEIGHTS: dict[str, Callable[[int], Tensor]] = {
    "bound": losses.bound_weights,
    "exp": losses.exp_weights,
    "geometric": losses.geometric_weights,
    "uniform": losses.uniform_weights,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """One training run.

    Attributes:
        objective: what a position's loss is.
        position_weights: ``bound`` (K-h+1)/K, ``exp`` e^(-(h-1)/4), ``geometric`` 0.8^(h-1), ``uniform``, or ``own``:
            those that the objective names.
        steps: optimiser updates.
        rows_per_step: sequences in an update.
        blocks_per_row: anchors sampled in each.
        learning_rate: peak, reached after ``warmup`` of the run, then a cosine down to a tenth.
        warmup: share of the run.
        weight_decay: on matrices.
        clip: largest gradient norm.
        confidence_weight: of the confidence head's cross-entropy against 1 - TV.
        prefix: whose tokens stand before a position that is scored: ``text``, ``student`` (what the drafter itself
            proposed), ``accepted`` (the same, but nothing counts behind a proposal that is not the target's most
            probable token), or ``own``: what suits the drafter, ``accepted`` for mask tokens, ``text`` for others.
        seed: of weights, rows and anchors.
        fused: compute the loss chunk by chunk from hidden states where the objective allows it: the same numbers up to
            rounding, without the logits of the whole batch (`Objective.divergence`).
        one_by_one: go through the heads of an independent network (Medusa, parallel heads) one after another in the
            backward pass: the graph of one head at a time, for a second forward pass through each.
        draft_law: of a network with a path selector (DFlash2), the law that the objective is about. ``vocabulary``: the
            softmax of the selector's scores over all tokens. ``backbone``: without the selector, as released training
            code does it beside ``selector_weight``. ``candidates``: over the listed tokens alone, as decoding draws;
            target mass outside the list counts as that outside a pruned vocabulary.
        selector_weight: of the cross-entropy over the listed tokens, given the text's own token before (released
            training code takes 1); positions whose token is not listed are skipped.
        inject_labels: a token that is not listed takes the last candidate's place, in ``candidates`` and for
            ``selector_weight``, instead of being skipped.
        matmul_precision: ``highest`` is float32 throughout; ``medium`` lets products run on bfloat16 units.
        save_every: updates between saved states.
        validation_share: of prompts kept out of training.
    """

    objective: Objective = field(default_factory=TVP)
    position_weights: str = "own"
    steps: int = 1000
    rows_per_step: int = 8
    blocks_per_row: int = 32
    learning_rate: float = 6e-4
    warmup: float = 0.04
    weight_decay: float = 0.01
    clip: float = 1.0
    confidence_weight: float = 1.0
    prefix: str = "own"
    seed: int = 0
    fused: bool = True
    one_by_one: bool = False
    draft_law: str = "vocabulary"
    selector_weight: float = 0.0
    inject_labels: bool = False
    matmul_precision: str = "highest"
    save_every: int = 100
    validation_share: float = 0.02

    def __post_init__(self) -> None:
        """Refuse unknown words before hours of work."""
        _one_of("position_weights", self.position_weights, ("own", *POSITION_WEIGHTS))
        _one_of("draft_law", self.draft_law, DRAFT_LAWS)
        _one_of("prefix", self.prefix, ("own", "accepted", "student", "text"))
        _one_of("matmul_precision", self.matmul_precision, MATMUL_PRECISIONS)
        if not 0.0 < self.learning_rate < 1.0:
            raise ForerunError(f"learning_rate is {self.learning_rate}; give a number between 0 and 1")
        if self.selector_weight < 0.0:
            raise ForerunError(f"selector_weight is {self.selector_weight}; give 0 or more")
        if not 0 <= self.seed < 2**31:  # the step number takes the lower bits of a 64-bit seed
            raise ForerunError(f"seed is {self.seed}; give a whole number from 0 to 2**31 - 1")

    @property
    def weights_name(self) -> str:
        """The position weights that are used, by name."""
        return self.objective.weights if self.position_weights == "own" else self.position_weights


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """A finished run."""

    network: DraftNetwork
    validation: dict[str, float]
    anchors: int
    seconds: float


def split_rows(rows: list[FeatureRow], share: float) -> tuple[list[FeatureRow], list[FeatureRow]]:
    """Training and validation rows, by a hash of the prompt, so that two answers to one prompt stay together."""

    def held_out(row: FeatureRow) -> bool:
        prompt = row.job.rpartition("/")[0]
        return int.from_bytes(hashlib.sha256(prompt.encode()).digest()[:4], "big") < share * 2**32

    training, validation = [row for row in rows if not held_out(row)], [row for row in rows if held_out(row)]
    if not training or not validation:
        raise ForerunError(
            f"{len(rows)} rows leave {len(training)} for training and {len(validation)} for validation; add data"
        )
    return training, validation


def train(
    target: TransformersTarget,
    rows: list[FeatureRow],
    drafter_config: DrafterConfig,
    vocabulary: DraftVocabulary,
    config: TrainConfig,
    run_folder: Path,
    *,
    resume: bool,
    progress: Progress,
) -> TrainResult:
    """Train, saving the state on the way.

    Args:
        target: supplies embeddings, head and final norm; not changed.
        rows: captured features.
        drafter_config: shape of the drafter.
        vocabulary: tokens it can draft.
        config: of the run.
        run_folder: state and log.
        resume: go on from the state in ``run_folder``.
        progress: the caller's bars.

    Raises:
        ForerunError: a state exists and ``resume`` is false, the state is damaged or of another run, no held-out answer
            is longer than a block, or the loss is not finite.
    """
    torch.set_float32_matmul_precision(config.matmul_precision)
    training, validation = split_rows(
        [row for row in rows if len(row.token_ids) - row.prompt_length >= 2], config.validation_share
    )
    if all(len(row.token_ids) - row.prompt_length <= drafter_config.block_size for row in validation):
        raise ForerunError(
            f"none of {len(validation)} held-out answers is longer than a block of {drafter_config.block_size} tokens, "
            "so none can show how far drafts get; add data or draft fewer tokens"
        )
    identity = run_identity(settings_of(config), drafter_config, vocabulary, target, rows)
    network = network_of(drafter_config)
    _check_network(network, config)
    network.initialise(target, vocabulary, generator=torch.Generator().manual_seed(config.seed))
    teacher = Teacher(target, vocabulary)
    optimizer = optimizer_of(network, config)
    history = AcceptanceHistory()
    start, seconds = resume_state(network, optimizer, history, identity, run_folder, resume)
    scorer = Scorer(
        network=network,
        teacher=teacher,
        objective=config.objective,
        weights=POSITION_WEIGHTS[config.weights_name](drafter_config.block_size),
        total_steps=config.steps,
        fused=config.fused,
        one_by_one=config.one_by_one,
        draft_law=config.draft_law,
        selector=config.selector_weight > 0.0,
        inject=config.inject_labels,
    )
    task = progress.add_task("Training", total=config.steps, completed=start)
    anchors = sum(anchors_of(training, config, step) for step in range(start))
    began = time.perf_counter()
    for step in range(start, config.steps):
        batch = make_batch(
            rows_of(training, config, step),
            blocks=config.blocks_per_row,
            slots=drafter_config.block_size,
            generator=torch.Generator().manual_seed((config.seed << 32) + step),
        )
        for group in optimizer.param_groups:
            group["lr"] = learning_rate_at(config, step)
        optimizer.zero_grad(set_to_none=True)
        metrics, acceptances = _backward(scorer, batch, config, step, history.settled)
        norm = torch.nn.utils.clip_grad_norm_(network.parameters(), config.clip)
        if not bool(torch.isfinite(norm)):
            raise ForerunError(
                f"step {step}: the gradient is not finite (loss {metrics['loss']:.4g}); lower the learning rate"
            )
        optimizer.step()
        history.observe(acceptances)
        anchors += int(batch.valid[:, :, 0].sum())
        append_jsonl(run_folder / LOG_FILE, [{"step": step, "gradient_norm": float(norm), **metrics}])
        progress.update(task, advance=1, description=f"Training (1 - TV {metrics['acceptance']:.3f})")
        if (step + 1) % config.save_every == 0 or step + 1 == config.steps:
            save_state(
                network, optimizer, history, identity, step + 1, seconds + time.perf_counter() - began, run_folder
            )
    total_seconds = seconds + time.perf_counter() - began
    return TrainResult(
        network=network, validation=validate(network, teacher, validation), anchors=anchors, seconds=total_seconds
    )


def _backward(
    scorer: Scorer, batch: BlockBatch, config: TrainConfig, step: int, settled: float
) -> tuple[dict[str, float], MaskedSum]:
    """Gradients of one update, numbers for the log, and the batch's acceptance."""
    scored = scorer.score(batch, step=step, settled=settled)
    acceptances = losses.masked_sum(scored.acceptance, batch.valid)
    if int(scored.objective.count) == 0:
        return {"loss": 0.0, "acceptance": 0.0, "valid": 0}, acceptances
    loss = scored.objective.mean()
    metrics = {"loss": float(loss.detach())}
    whole = loss
    if scored.confidence is not None:
        confidence_values = losses.confidence_loss(scored.confidence, scored.acceptance)
        confidence_loss = losses.masked_sum(confidence_values, batch.valid).mean()
        whole = loss + config.confidence_weight * confidence_loss
        metrics["confidence_loss"] = float(confidence_loss.detach())
    if scored.selector is not None:
        selector_loss = scored.selector.mean()
        whole = whole + config.selector_weight * selector_loss
        metrics["selector_loss"] = float(selector_loss.detach())
        metrics["listed"] = float(scored.selector.count / batch.valid.sum())
    whole.backward()
    metrics |= {
        "acceptance": float(acceptances.mean()),
        "valid": int(scored.objective.count),
        "settled": settled,
        **config.objective.measures(scored.moment),
    }
    return metrics, acceptances


def learning_rate_at(config: TrainConfig, step: int) -> float:
    """Linear warm-up, then a cosine to a tenth of the peak."""
    warmup_steps = max(1, round(config.warmup * config.steps))
    if step < warmup_steps:
        return config.learning_rate * (step + 1) / warmup_steps
    progress = (step - warmup_steps) / max(1, config.steps - warmup_steps)
    return config.learning_rate * (0.1 + 0.45 * (1 + math.cos(math.pi * progress)))


def rows_of(rows: list[FeatureRow], config: TrainConfig, step: int) -> list[FeatureRow]:
    """Rows of one update: consecutive places in an endless sequence of shuffled epochs."""
    chosen = []
    for place in range(step * config.rows_per_step, (step + 1) * config.rows_per_step):
        epoch, index = divmod(place, len(rows))
        chosen.append(rows[_shuffled(len(rows), config.seed, epoch)[index]])
    return chosen


@lru_cache(maxsize=4)
def _shuffled(count: int, seed: int, epoch: int) -> list[int]:
    return random.Random(f"{seed}/{epoch}").sample(range(count), count)


def anchors_of(rows: list[FeatureRow], config: TrainConfig, step: int, *, first_slot: int = 0) -> int:
    """Blocks of one update; ``first_slot`` as in `anchor_range`."""
    return sum(
        min(config.blocks_per_row, len(anchor_range(row, first_slot=first_slot))) for row in rows_of(rows, config, step)
    )


def optimizer_of(network: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """AdamW; vectors do not decay."""
    matrices = [parameter for parameter in network.parameters() if parameter.ndim >= 2]
    vectors = [parameter for parameter in network.parameters() if parameter.ndim < 2]
    groups = [{"params": matrices, "weight_decay": config.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=(0.9, 0.95))


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ForerunError(f"{name} is {value!r}; choose one of {', '.join(known)}")


def _check_network(network: DraftNetwork, config: TrainConfig) -> None:
    """Refuse settings that mean nothing to this network."""
    if config.prefix in ("accepted", "student"):
        raise ForerunError(
            f"{network.config.architecture} is trained on the text; only mask tokens on their own prefix"
        )
    if config.one_by_one and not isinstance(network, IndependentNetwork):
        raise ForerunError(
            f"one_by_one is for heads that do not see each other; those of {network.config.architecture} do"
        )
    selects = config.draft_law != "vocabulary" or config.selector_weight > 0.0 or config.inject_labels
    if selects and network.candidates is None:
        raise ForerunError(
            "draft_law, selector_weight and inject_labels are for drafters with a path selector; "
            f"{network.config.architecture} has none"
        )
    if config.draft_law == "backbone" and config.selector_weight == 0.0:
        raise ForerunError("draft_law backbone leaves the path selector untrained; give it a selector_weight")


def settings_of(config: TrainConfig) -> dict[str, Any]:
    """What shapes the weights; how often they are saved does not."""
    settings = {key: value for key, value in asdict(config).items() if key not in ("save_every", "objective")}
    return settings | {"objective": config.objective.describe(), "position_weights": config.weights_name}
