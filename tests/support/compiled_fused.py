"""Compile the fused path with a backend and compare: `python -m tests.support.compiled_fused BACKEND`.

A process of its own: the annotation checks of the test run wrap every function in what the compiler cannot follow.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor

from forerun.losses.fused import Divergence, Projection, TargetStates, fused_sum, fused_values
from tests.support.fused import problem


def main(backend: str) -> None:
    """Values and gradients, compiled and not, must be the same numbers."""
    given = problem()
    mask = torch.arange(40) % 3 > 0

    def both(hidden: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        draft = Projection(hidden=hidden, weight=weight)
        target = TargetStates(hidden=given.target_hidden, weight=given.target_weight)
        divergence = Divergence(tvp=1.0, beta=0.5, cross_entropy=0.1)
        rows = fused_values(draft, target, divergence, labels=given.labels, mask=mask, chunk=16)
        whole = fused_sum(draft, target, divergence, labels=given.labels, mask=mask, chunk=16)
        return (rows.values * (1 + rows.acceptances)).sum(), whole.total

    compiled = torch.compile(both, fullgraph=True, backend=backend)(given.hidden, given.weight)
    plain = both(given.hidden, given.weight)
    for found, expected in zip(compiled, plain, strict=True):
        torch.testing.assert_close(found, expected)
        for one, other in zip(
            torch.autograd.grad(found, (given.hidden, given.weight), retain_graph=True),
            torch.autograd.grad(expected, (given.hidden, given.weight)),
            strict=True,
        ):
            torch.testing.assert_close(one, other)
    print("equal")


if __name__ == "__main__":
    main(sys.argv[1])
