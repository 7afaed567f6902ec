"""Time and memory of a loss from hidden states: eager, chunked, and the matrix products that nobody can avoid.

    python -m benchmarks.losses [--quick]

A loss over a vocabulary is three matrix products (logits of the target, logits of the draft, gradient in the hidden
states) and a few passes over positions x vocabulary numbers. The products are the floor. The eager losses keep all
logits and several copies; the chunked path keeps two chunks. Contenders take turns; time is processor time of one
thread, which leaves out what other processes took. Memory is counted in allocations, once. `speculators` takes part
where the package is installed: its loss functions are read from their file, because the package itself does not import
without its training dependencies.

The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, Final, final

import torch
from torch import Tensor

from benchmarks.memory import allocations
from benchmarks.timing import interleaved, machine, ratios, spread
from forerun import losses
from forerun.environment import keep_freed_memory
from forerun.losses.fused import DEFAULT_CHUNK, Divergence, Projection, TargetStates, fused_values

HIDDEN: Final = 576  # SmolLM2's; the floor grows with it and the passes over logits do not, so small is the hard case
VOCABULARIES: Final = (32_768, 49_152, 151_936, 262_144)
POSITIONS: Final = (256, 1024, 4096, 8192)
QUICK_CELLS: Final = ((32_768, 256),)
BETA: Final = 0.5
SMALL_BETA: Final = 0.1  # the most expensive: below 0.25 a value costs an expm1 more
REPEATS: Final = 3
_MEMORY_LIMIT: Final = 12 * 2**30
_EAGER_COPIES: Final = 9  # tensors of positions x vocabulary that eager and its profile may hold, generously
# Floating-point operations of one repetition of the floor; a core does some 5e10 a second.
_TIMED_LIMIT: Final = 2.5e11
_MEASURED_LIMIT: Final = 3.0e11
_ALWAYS_MEASURED: Final = ((49_152, 4096),)  # the size for which the memory bar is set
_UNTIMED: Final = ("eager tvp", "chunked tvp")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One size: the same random states and head for all contenders."""

    hidden: Tensor
    target_hidden: Tensor
    head: Tensor

    @classmethod
    def make(cls, vocab: int, positions: int) -> Cell:
        """Laws that agree about as well as a trained drafter's: mean acceptance near one half."""
        generator = torch.Generator().manual_seed(0)
        hidden = 2 * torch.randn(positions, HIDDEN, generator=generator)
        noise = torch.randn(positions, HIDDEN, generator=generator)
        head = torch.randn(vocab, HIDDEN, generator=generator) / HIDDEN**0.5
        return cls(hidden=hidden.requires_grad_(), target_hidden=hidden.detach() + noise, head=head)

    def eager(self, loss: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Gradient in the hidden states through whole logits; `loss` takes those of the target and of the draft."""
        value = loss(self.target_hidden @ self.head.T, self.hidden @ self.head.T)
        return torch.autograd.grad(value.sum(), self.hidden)[0]

    def chunked(self, divergence: Divergence) -> Tensor:
        """The same gradient, chunk by chunk."""
        draft = Projection(hidden=self.hidden, weight=self.head)
        target = TargetStates(hidden=self.target_hidden, weight=self.head)
        return torch.autograd.grad(fused_values(draft, target, divergence).values.sum(), self.hidden)[0]

    @torch.no_grad()
    def products(self) -> Tensor:
        """The floor: both laws' logits and one product back, in chunks as large as the chunked path's buffers."""
        gradient = torch.empty_like(self.hidden)
        size = 3 * DEFAULT_CHUNK // 4
        for start in range(0, len(self.hidden), size):
            rows = slice(start, start + size)
            torch.mm(self.target_hidden[rows], self.head.T)
            torch.mm(torch.mm(self.hidden[rows], self.head.T), self.head, out=gradient[rows])
        return gradient


def contenders(cell: Cell) -> dict[str, Callable[[], Tensor]]:
    """Everything that is measured at one size, the floor first."""
    named: dict[str, Callable[[], Tensor]] = {
        "products": cell.products,
        "eager tvp": lambda: cell.eager(lambda target, draft: losses.tvp(target.log_softmax(-1), draft, beta=BETA)),
        "chunked tvp": lambda: cell.chunked(Divergence(tvp=1.0, beta=BETA)),
        "chunked tvp 0.1": lambda: cell.chunked(Divergence(tvp=1.0, beta=SMALL_BETA)),
        "chunked tv": lambda: cell.chunked(Divergence(total_variation=1.0)),
        "chunked kl": lambda: cell.chunked(Divergence(forward_kl=1.0)),
    }
    theirs = speculators_losses()
    if theirs is not None:
        named["speculators tv"] = lambda: cell.eager(lambda target, draft: theirs.tv_loss(draft, target))
    return named


def speculators_losses() -> ModuleType | None:
    """The file of loss functions of vLLM's speculators, None where it is not installed."""
    package = importlib.util.find_spec("speculators")
    if package is None or package.origin is None:
        return None
    file = Path(package.origin).parent / "losses" / "eager.py"
    spec = importlib.util.spec_from_file_location("speculators_eager_losses", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measure_cell(vocab: int, positions: int) -> list[dict[str, Any]]:
    """One row per contender: memory, and time unless that would take minutes."""
    named = contenders(Cell.make(vocab, positions))
    timed = operations(vocab, positions) <= _TIMED_LIMIT
    if not timed:
        named = {name: named[name] for name in _UNTIMED}
    memory = {name: allocations(work).extra for name, work in named.items()}  # warms up, too
    rows: list[dict[str, Any]] = [
        {
            "vocabulary": vocab,
            "positions": positions,
            "contender": name,
            "peak_extra_bytes": memory[name],
            "peak_extra_chunks": memory[name] / (DEFAULT_CHUNK * vocab * 4),
        }
        for name in named
    ]
    if timed:
        seconds = interleaved(named, repeats=REPEATS, warmups=0, clock=time.process_time)
        for row in rows:
            own = seconds[row["contender"]]
            row |= {"seconds": spread(own), "ratio_to_products": ratios(own, seconds["products"])}
    return rows


def operations(vocab: int, positions: int) -> float:
    """Multiplications and additions of the three products."""
    return 6.0 * positions * vocab * HIDDEN


def skip_reason(vocab: int, positions: int) -> str | None:
    """Why a size is left out, None if it is not."""
    if _EAGER_COPIES * positions * vocab * 4 > _MEMORY_LIMIT:
        return "eager does not fit into 12 GiB"
    if operations(vocab, positions) > _MEASURED_LIMIT and (vocab, positions) not in _ALWAYS_MEASURED:
        return "takes too long on one core"
    return None


def measure(quick: bool) -> dict[str, Any]:
    """All sizes that fit, smallest first, with what is needed to repeat the measurement.

    Args:
        quick: one small size.
    """
    cells = QUICK_CELLS if quick else tuple((vocab, count) for count in POSITIONS for vocab in VOCABULARIES)
    rows: list[dict[str, Any]] = []
    skipped: list[dict[str, Any]] = []
    for vocab, positions in cells:
        reason = skip_reason(vocab, positions)
        if reason is not None:
            skipped.append({"vocabulary": vocab, "positions": positions, "reason": reason})
            continue
        found = measure_cell(vocab, positions)
        print(table({"rows": found, "skipped": []}), file=sys.stderr, flush=True)
        rows += found
    return {
        "benchmark": "losses",
        "quick": quick,
        "hidden": HIDDEN,
        "chunk": DEFAULT_CHUNK,
        "beta": BETA,
        "speculators": None if speculators_losses() is None else metadata.version("speculators"),
        "machine": machine(),
        "rows": rows,
        "skipped": skipped,
    }


def table(result: dict[str, Any]) -> str:
    """The rows for people."""
    lines = ["vocabulary  positions  contender        seconds (quartiles)       x products    extra memory"]
    for row in result["rows"]:
        timing = "not timed".ljust(34)
        if "seconds" in row:
            own, ratio = row["seconds"], row["ratio_to_products"]
            quartiles = f"({own['lower_quartile']:.3f}-{own['upper_quartile']:.3f})"
            timing = f"{own['median']:7.3f} {quartiles:17} {ratio['median']:6.2f}".ljust(34)
        lines.append(
            f"{row['vocabulary']:10}  {row['positions']:9}  {row['contender']:15}  {timing}"
            f"  {row['peak_extra_bytes'] / 2**20:8.0f} MiB ({row['peak_extra_chunks']:.2f} chunks)"
        )
    for cell in result["skipped"]:
        lines.append(f"{cell['vocabulary']:10}  {cell['positions']:9}  skipped: {cell['reason']}")
    return "\n".join(lines)


def main() -> None:
    """Print the table and the JSON line."""
    parser = argparse.ArgumentParser(description="Time and memory of losses from hidden states.")
    parser.add_argument("--quick", action="store_true", help="one small size")
    torch.set_num_threads(1)
    keep_freed_memory()  # as training does
    result = measure(parser.parse_args().quick)
    print(table(result))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
