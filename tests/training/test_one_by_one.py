"""Heads that are taken one after another in the backward pass: the same gradients, the graph of one head."""

import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any, final

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from forerun.drafters import IndependentNetwork
from forerun.errors import ForerunError
from forerun.losses import TVP, DPace, Objective
from forerun.models import TransformersTarget, tiny_target
from forerun.training.batch_loss import Scorer
from forerun.training.blocks import BlockBatch, make_batch
from forerun.training.teacher import Teacher
from tests.support.networks import random_network, taught_row, tiny_config, tiny_medusa, whole
from tests.support.speed import without_shape_checks
from tests.support.training import SMALL, cyclic_target, run_training

VOCAB, SLOTS = 24, 6
KINDS = ("medusa", "medusa, own heads", "parallel heads")
ROUNDING = 1e-6
"""Of gradients near 1: fused sums of one head or of all."""


def network_of_kind(target: TransformersTarget, kind: str) -> IndependentNetwork:
    network = random_network(tiny_config(target, block=SLOTS, kind=kind))
    assert isinstance(network, IndependentNetwork)
    return network


def batch_of(target: TransformersTarget, network: IndependentNetwork, *, rows: int = 2) -> BlockBatch:
    captured = network.config.captured_layers
    row = taught_row(target, torch.arange(60) * 7 % VOCAB, prompt_length=4, captured=captured)
    return make_batch([row] * rows, blocks=40, slots=SLOTS, generator=None)


def scorer_of(
    network: IndependentNetwork, target: TransformersTarget, objective: Objective, one: bool, *, fused: bool = True
) -> Scorer:
    return Scorer(
        network=network,
        teacher=Teacher(target, whole(target)),
        objective=objective,
        weights=torch.linspace(1, 0.5, SLOTS),
        total_steps=10,
        fused=fused,
        one_by_one=one,
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("objective", [TVP(), DPace()])
def test_gradients_are_those_of_all_heads_at_once(kind: str, objective: Objective) -> None:
    """Catches a head whose gradient is lost, counted twice or another head's; D-PACE looks at whole blocks.

    The first gradients are those from all logits at once.
    """
    target = tiny_target(vocab_size=VOCAB, dtype=torch.float32)
    network = network_of_kind(target, kind)
    batch = batch_of(target, network)
    gradients = []
    for one_by_one, fused in ((False, False), (False, True), (True, True)):
        network.zero_grad(set_to_none=True)
        with without_shape_checks():
            scorer = scorer_of(network, target, objective, one_by_one, fused=fused)
            scorer.score(batch, step=3, settled=0.0).objective.mean().backward()
        gradients.append({name: weight.grad for name, weight in network.named_parameters()})
    for name, expected in gradients[0].items():
        assert expected is not None and float(expected.abs().max()) > 0, name
        for found in gradients[1:]:
            torch.testing.assert_close(found[name], expected, rtol=0, atol=ROUNDING, msg=name)


@final
class LiveBytes(TorchDispatchMode):
    """Counts the bytes of all storages that operators made and nobody has freed; time plays no part."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now: int = 0
        self.peak: int = 0
        self._seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in tree_iter(result):
            if isinstance(value, Tensor):
                self._count(value.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._seen:
            return
        self._seen.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.now -= size


def peak_bytes(network: IndependentNetwork, target: TransformersTarget, one_by_one: bool) -> int:
    batch = batch_of(target, network, rows=12)
    network.zero_grad(set_to_none=True)
    with without_shape_checks():
        scorer = scorer_of(network, target, TVP(), one_by_one)
        with LiveBytes() as alive:
            scorer.score(batch, step=3, settled=0.0).objective.mean().backward()
    peak: int = alive.peak
    return peak


def test_the_graph_of_one_head_is_alive_at_a_time() -> None:
    """Catches a switch that keeps every head's activations until the backward pass.

    Heads of six blocks hold some thirteen activations each, of which all but the last are the graph.
    """
    target = tiny_target(vocab_size=VOCAB, dtype=torch.float32)
    network = random_network(tiny_medusa(target, VOCAB, SLOTS, num_blocks=6))
    assert isinstance(network, IndependentNetwork)
    assert peak_bytes(network, target, one_by_one=True) < 0.45 * peak_bytes(network, target, one_by_one=False)


def test_heads_that_see_each_other_are_refused(tmp_path: Path) -> None:
    """Catches a setting that is silently ignored."""
    with pytest.raises(ForerunError, match="one_by_one is for heads that do not see each other; those of dspark do"):
        run_training(tmp_path, replace(SMALL, one_by_one=True), target=cyclic_target())
