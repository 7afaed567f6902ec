"""Passes on another device than the host's, which on a machine without one is torch's meta device."""

import torch
from jaxtyping import Int
from torch import Tensor

from forerun.models import Block, tiny_target
from tests.support.accelerator import without_numbers


def drafts(count: int) -> Int[Tensor, " count"]:
    """Tokens that a drafter left on the device."""
    return torch.zeros(count, dtype=torch.int64, device="meta")


def test_passes_fetch_nothing() -> None:
    """Catches drafts that come back to build a pass, masks whose size the host has to learn, and forgotten tensors."""
    target = without_numbers(tiny_target(vocab_size=40))
    batch = target.new_batch()
    first, second = batch.add(), batch.add()
    target.forward(torch.tensor([3, 1, 4]), first, captured=(0, 1), num_logits=1)
    target.forward(torch.tensor([3, 1, 4, 5]), second, num_logits=2)
    rounds: list[tuple[tuple[Block, ...], list[int]]] = [
        ((Block(cache=first, token_ids=drafts(2)), Block(cache=second, token_ids=drafts(2))), [2, 2]),
        ((Block(cache=first, token_ids=drafts(3)), Block(cache=second, token_ids=torch.tensor([1]))), [3, 1]),
        (
            (Block(cache=first, token_ids=drafts(3), parents=(-1, 0, 0)), Block(cache=second, token_ids=drafts(2))),
            [3, 2],
        ),
        ((Block(cache=second, token_ids=drafts(4)),), [4]),
    ]
    for blocks, widths in rounds:
        steps = target.forward_batch(blocks, captured=(0, 1))
        assert [step.logits.shape for step in steps] == [(width, 40) for width in widths]
        assert all(step.features.device.type == "meta" for step in steps)
        first.rollback(3)
