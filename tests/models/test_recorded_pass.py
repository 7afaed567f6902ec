"""Passes that are recorded and replayed compute what passes from Python compute; the CUDA path, on CPU tensors."""

from collections.abc import Callable
from itertools import count

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from forerun.models import Block, TransformersTarget
from forerun.models.recorded_pass import PassOutputs, Recorder
from tests.support.batches import CheckedBatch, Piece
from tests.support.families import FAMILIES, random_model
from tests.support.tokenizers import VOCAB_SIZE

CLOSE = 1e-10
"""Float64 through three layers."""


class Tape:
    """What a CUDA graph is, on a CPU: the list of tensor operations of one run, done again on the same tensors.

    Numbers of Python are frozen into it, and the tensors of its outputs are overwritten by every replay.

    Args:
        traced: whether to keep the bare operations; otherwise Python runs again, which makes recordings cheap.
    """

    def __init__(self, *, traced: bool) -> None:
        self._traced = traced
        self.recordings = 0
        self.replays = 0

    def __call__(self, run: Callable[[], PassOutputs]) -> Callable[[], PassOutputs]:
        def both() -> tuple[torch.Tensor, torch.Tensor]:
            outputs = run()
            return outputs.logits, outputs.features

        self.recordings += 1
        operations = make_fx(both)() if self._traced else both
        logits, features = (tensor.clone() for tensor in operations())

        def replay() -> PassOutputs:
            self.replays += 1
            for fresh, place in zip(operations(), (logits, features), strict=True):
                place.copy_(fresh)
            return PassOutputs(logits=logits, features=features)

        return replay


def small(family: str, dtype: torch.dtype, recorder: Recorder | None) -> TransformersTarget:
    model = random_model(FAMILIES[family]())
    nn.Module.to(model, dtype)
    return TransformersTarget(model, None, name=family, recorder=recorder)


@pytest.mark.parametrize("family", ["llama", "gemma2", "mistral", "qwen2", "gpt2"])
def test_replayed_passes_equal_whole_passes(family: str) -> None:
    """Catches what a recording must not freeze: lengths, positions, slots, trees, buffers that have moved since."""
    tape, numbers = Tape(traced=family == "llama"), count(5, 7)
    target = small(family, torch.float64, tape)
    checked = CheckedBatch(target, target.model, close=1e-5 if family == "gemma2" else CLOSE)

    def take(length: int) -> list[int]:
        return [next(numbers) % VOCAB_SIZE for _ in range(length)]

    first, second = checked.add(), checked.add()
    checked.forward(Piece(first, take(6)), Piece(second, take(2)))  # the first pass makes the buffers
    assert tape.recordings == 0
    for _ in range(3):
        checked.forward(Piece(first, take(1)), Piece(second, take(4)))
        checked.rollback(second, len(second.token_ids) - 2)
    for kept in ((0, 2), (0, 1)):
        checked.forward(Piece(first, take(2)), Piece(second, take(4), parents=(-1, 0, 0, 2), kept=kept))
    assert (tape.recordings, tape.replays) == (2, 5)
    checked.forward(Piece(second, take(2)), num_logits=1)
    third = checked.add()  # larger buffers: the old recordings are worthless
    checked.forward(Piece(third, take(20)))
    checked.forward(Piece(first, take(1)), Piece(second, take(4)), Piece(third, take(2)))
    checked.remove(first)
    checked.forward(Piece(third, take(1)), Piece(second, take(4)), num_logits=2)
    assert (tape.recordings, tape.replays) == (5, 8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_replaying_is_bit_for_bit_what_was_recorded(dtype: torch.dtype) -> None:
    """Catches outputs that the next replay overwrites in the caller's hands, and inputs that a recording reads late."""
    steps = []
    recorders: list[Recorder] = [
        Tape(traced=True),
        lambda run: run,
    ]  # the second computes anew
    for recorder in recorders:
        target = small("llama", dtype, recorder)
        cache, ids = target.new_cache(), torch.arange(60) * 37 % VOCAB_SIZE
        own = [target.forward(ids[:9], cache)]
        for start in range(9, 30, 4):
            own.append(target.forward(ids[start : start + 5], cache, captured=(2, 0)))
            cache.rollback(start + 4)
        steps.append(own)
    for replayed, computed in zip(*steps, strict=True):
        assert replayed.logits.dtype == dtype
        assert torch.equal(replayed.logits, computed.logits)
        assert torch.equal(replayed.features, computed.features)
    assert torch.isfinite(steps[0][-1].logits).all()


@pytest.mark.parametrize("family", ["llama", "gemma2", "mistral", "gpt2"])
def test_bfloat16_rows_agree_with_float32(family: str) -> None:
    """Catches masks or caches of another type than the model's, in ragged batches and trees."""
    exact, rounded = small(family, torch.float32, None), small(family, torch.bfloat16, None)
    results = []
    for target in (exact, rounded):
        batch = target.new_batch()
        caches = [batch.add(), batch.add()]
        prompts = [Block(cache=caches[0], token_ids=torch.arange(9)), Block(cache=caches[1], token_ids=torch.arange(3))]
        target.forward_batch(prompts, num_logits=1)
        tree = Block(cache=caches[0], token_ids=torch.tensor([5, 6, 7]), parents=(-1, 0, 0))
        steps = target.forward_batch([tree, Block(cache=caches[1], token_ids=torch.tensor([8]))], captured=(1,))
        results.append(steps)
    for step, close_to in zip(results[1], results[0], strict=True):
        assert step.logits.dtype == step.features.dtype == torch.bfloat16
        scale = close_to.logits.std()
        assert (step.logits.float() - close_to.logits).abs().mean() < 0.1 * scale
