"""Memory, counted allocation by allocation; equal on every run, so no tolerance is needed."""

import pytest
import torch

from benchmarks.memory import allocations
from forerun.losses.fused import fused_sum, fused_values
from tests.support.fused import DIVERGENCES, Problem, problem
from tests.support.speed import without_shape_checks

VOCAB, CHUNK = 3000, 32
TWO_CHUNKS = 2 * CHUNK * VOCAB * 4


def extra(given: Problem, name: str, *, total: bool = False) -> int:
    """Bytes that value and gradient need beside themselves."""
    divergence = DIVERGENCES[name][0]
    wanted = [tensor for tensor in (given.hidden, given.weight) if tensor.requires_grad]

    def work() -> object:
        if total:
            whole = fused_sum(given.draft, given.target, divergence, labels=given.labels, chunk=CHUNK)
            return whole, torch.autograd.grad(whole.total, wanted)
        rows = fused_values(given.draft, given.target, divergence, labels=given.labels, chunk=CHUNK)
        return rows, torch.autograd.grad(rows.values.sum(), wanted)

    with without_shape_checks():
        return allocations(work).extra


@pytest.mark.parametrize("name", ["cross_entropy", "forward_kl", "lk_alpha", "tvp 0", "tvp 0.5", "everything"])
def test_two_chunks(name: str) -> None:
    """Catches a third buffer, a copy of the logits, and rows that are worked on without a limit."""
    given = problem(200, vocab=VOCAB).to(torch.float32).frozen()
    assert 0.5 * TWO_CHUNKS < extra(given, name) <= TWO_CHUNKS or name == "cross_entropy"


def test_independent_of_the_number_of_positions() -> None:
    """C45. Catches anything of the size positions x vocabulary; eager needs 8 times as much for 8 times as many."""
    sizes = [extra(problem(n, vocab=VOCAB).to(torch.float32).frozen(), "tvp 0.5") for n in (64, 512)]
    assert sizes[1] - sizes[0] < 0.01 * TWO_CHUNKS


def test_far_below_eager() -> None:
    """At least eight times, at 512 positions; the ratio grows with them."""
    given = problem(512, vocab=VOCAB).to(torch.float32).frozen()
    loss = DIVERGENCES["tvp 0.5"][1]
    eager = allocations(lambda: torch.autograd.grad(given.eager(loss).sum(), given.hidden)).extra
    assert extra(given, "tvp 0.5") * 8 <= eager


@pytest.mark.parametrize("total", [False, True])
def test_trainable_head(total: bool) -> None:
    """The head's gradient is as large as the head and is held twice for a moment; nothing else is added."""
    given = problem(200, vocab=VOCAB).to(torch.float32)
    assert extra(given, "tvp 0.5", total=total) <= max(TWO_CHUNKS, given.weight.numel() * 4) + 200 * 8 * 4


def test_bfloat16_heads_are_widened_in_pieces() -> None:
    """Catches a float32 copy of the whole head, which for real sizes outweighs the chunks."""
    given = problem(64, vocab=VOCAB, hidden=256).to(torch.bfloat16).frozen()
    assert VOCAB * 256 * 4 > TWO_CHUNKS
    assert extra(given, "tvp 0.5") <= TWO_CHUNKS
