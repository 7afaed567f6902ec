"""From hidden states to values and gradients, one chunk of positions after the other.

Two buffers of logits are alive at a time, one per law, and every chunk uses them again; the draft's is overwritten by
the gradient. Nothing here knows autograd.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, final

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from forerun.losses.divergence import Divergence
from forerun.losses.fused.laws import Projection, TargetStates, TopKTarget
from forerun.losses.fused.positions import Positions
from forerun.losses.fused.products import add_logits_, to_hidden
from forerun.losses.fused.rows import RowResults, value_and_gradient_
from forerun.losses.fused.target_rows import StatesRows, TargetRows, TopKRows

Backend = Literal["torch", "triton"]
"""What works on the logits of a chunk: torch on blocks of rows, or one Triton program a row."""

SMALLEST_CHUNK: Final = 16
"""A sixteenth of a chunk is worked on at a time; with fewer positions the working rows would outweigh the chunk."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Task:
    """What is to be computed, positions first and flat.

    Attributes:
        draft: projections whose sum, plus `bias`, are the draft's logits.
        bias: of the draft head.
        target: where the target's law comes from; None for losses that need none.
        labels: data tokens in draft numbering.
        mask: True where a position is computed.
        row_weights: factor of each position's gradient; None for 1.
        divergence: at every position.
        chunk: positions of the two chunks that memory may grow by.
        backend: what works on the logits of a chunk.
        hidden_flags, weight_flags, bias_flag: which gradients are worth a matrix product.
    """

    draft: tuple[Projection, ...]
    bias: Float[Tensor, " draft_vocab"] | None
    target: TargetStates | TopKTarget | None
    labels: Int64[Tensor, " positions"] | None
    mask: Bool[Tensor, " positions"] | None
    row_weights: Float[Tensor, " positions"] | None
    divergence: Divergence
    chunk: int
    backend: Backend
    hidden_flags: tuple[bool, ...]
    weight_flags: tuple[bool, ...]
    bias_flag: bool

    @property
    def dtype(self) -> torch.dtype:
        """The working precision: float32, or float64 if a hidden state or a law is."""
        tensors = [projection.hidden for projection in self.draft]
        if isinstance(self.target, TargetStates):
            tensors.append(self.target.hidden)
        if isinstance(self.target, TopKTarget):
            tensors.append(self.target.log_probs)
        return torch.float64 if any(tensor.dtype == torch.float64 for tensor in tensors) else torch.float32


@final
class Results:
    """Numbers per position, and gradients of the weighted sum of the values.

    Attributes:
        values, acceptances, missing: as in `RowResults`; 0 at masked positions.
        hiddens: gradients in the precision of the hidden states, None where not wanted.
        weights: gradients in the working precision, None where not wanted.
        bias: likewise.
    """

    def __init__(self, task: Task) -> None:
        positions = task.draft[0].hidden.shape[0]
        self.values, self.acceptances, self.missing = (
            task.draft[0].hidden.new_zeros(positions, dtype=task.dtype) for _ in range(3)
        )
        self.hiddens = [
            torch.zeros_like(projection.hidden) if wanted else None
            for projection, wanted in zip(task.draft, task.hidden_flags, strict=True)
        ]
        self.weights = [
            torch.zeros_like(projection.weight, dtype=task.dtype) if wanted else None
            for projection, wanted in zip(task.draft, task.weight_flags, strict=True)
        ]
        self.bias = self.values.new_zeros(task.draft[0].weight.shape[0]) if task.bias_flag else None


def run_chunks(task: Task) -> Results:
    """Values at every position that the mask leaves, and the gradients that are wanted. Nothing else is computed.

    A buffer holds three quarters of a chunk; the rest of two chunks is left to what one block of rows needs.
    """
    results = Results(task)
    valid = Positions.valid(task.mask, len(results.values))
    step, draft_vocab = 3 * task.chunk // 4, task.draft[0].weight.shape[0]
    rows, spare = min(step, valid.count), task.chunk // 8 * draft_vocab
    buffer = results.values.new_empty(rows, draft_vocab)
    law = _target_rows(task, rows=rows, spare=spare)
    for start in range(0, valid.count, step):
        chunk = valid.run(start, start + step)
        logits = buffer[: chunk.count]
        hiddens = [chunk.read(projection.hidden).to(task.dtype) for projection in task.draft]
        for number, (hidden, projection) in enumerate(zip(hiddens, task.draft, strict=True)):
            add_logits_(logits, hidden, projection.weight, spare=spare, onto=number > 0)
        _divergence_(task, results, chunk, logits, law)
        for gradient, projection in zip(results.hiddens, task.draft, strict=True):
            if gradient is not None:
                chunk.write(gradient, to_hidden(logits, projection.weight, spare=spare))
        for gradient, hidden in zip(results.weights, hiddens, strict=True):
            if gradient is not None:
                gradient.addmm_(logits.t(), hidden)
        if results.bias is not None:
            results.bias += logits.sum(0)
    return results


def _target_rows(task: Task, *, rows: int, spare: int) -> TargetRows | None:
    if task.target is None:
        return None
    if isinstance(task.target, TopKTarget):
        return TopKRows(task.target, draft_vocab=task.draft[0].weight.shape[0], dtype=task.dtype)
    return StatesRows(task.target, rows=rows, spare=spare, dtype=task.dtype)


def _divergence_(
    task: Task,
    results: Results,
    chunk: Positions,
    logits: Float[Tensor, "positions draft_vocab"],
    law: TargetRows | None,
) -> None:
    """Write the chunk's numbers into `results` and replace its logits by the gradient, times the position's weight."""
    if law is not None:
        law.enter(chunk)
    for block, block_logits, numbers in _blocks(task, chunk, logits, law):
        block.write(results.values, numbers.values)
        block.write(results.acceptances, numbers.acceptances)
        block.write(results.missing, numbers.missing)
        if task.row_weights is not None:
            block_logits *= block.read(task.row_weights).to(task.dtype)[:, None]


def _blocks(
    task: Task, chunk: Positions, logits: Float[Tensor, "positions draft_vocab"], law: TargetRows | None
) -> Iterator[tuple[Positions, Float[Tensor, "rows draft_vocab"], RowResults]]:
    """The parts that a backend works on at a time, when their logits have become gradients."""
    if task.backend == "triton":
        from forerun.losses.fused import kernels  # an optional package

        if task.bias is not None:
            logits += task.bias
        labels = None if task.labels is None else chunk.read(task.labels)
        target = None if law is None else law.logits(chunk)
        yield chunk, logits, kernels.value_and_gradient_(target, logits, labels, task.divergence)
        return
    size = task.chunk // SMALLEST_CHUNK
    for offset in range(0, chunk.count, size):
        block = chunk.run(offset, offset + size)
        block_logits = logits[offset : offset + block.count]
        if task.bias is not None:
            block_logits += task.bias
        labels = None if task.labels is None else block.read(task.labels)
        rows = None if law is None else law.law(block, offset)
        yield block, block_logits, value_and_gradient_(rows, block_logits, labels, task.divergence)
