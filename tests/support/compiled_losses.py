"""Compiles losses and compares them with themselves; run as a program, without the checks of tests.

Shape annotations are checked in tests by wrappers that no compiler can look through, so this runs in a process of its
own: ``python -m tests.support.compiled_losses BACKEND NAME...``.
"""

import sys

import torch
from torch import Tensor

from tests.support.losses import LOSSES, Values


def value_and_gradient(loss: Values) -> tuple[Tensor, Tensor]:
    """On three blocks of four positions with a mask and a label outside the draft vocabulary."""
    generator = torch.Generator().manual_seed(0)
    target, draft = torch.randn(2, 3, 4, 11, generator=generator)
    labels = torch.randint(-1, 11, (3, 4), generator=generator)
    mask = torch.rand(3, 4, generator=generator) < 0.8
    draft.requires_grad_()
    values = loss(labels, target.log_softmax(-1), draft, mask)
    (gradient,) = torch.autograd.grad(values.sum(), draft)
    return values.detach(), gradient


if __name__ == "__main__":
    backend, *names = sys.argv[1:]
    for name in names:
        torch.compiler.reset()
        compiled = value_and_gradient(torch.compile(LOSSES[name], fullgraph=True, backend=backend))
        for found, expected in zip(compiled, value_and_gradient(LOSSES[name]), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)
        print(name)
