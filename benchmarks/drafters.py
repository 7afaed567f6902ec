"""What drafting k tokens costs beside one token of the target, for every drafter, and what its training forward keeps.

A draft pays only while it costs less than the passes it saves, so each drafter's cost is given in target steps (one
token through the target after the same context). Networks have the recipe's shape, a block of 16 and random weights:
cost does not depend on what they have learned. Drafter and target take turns; the clock is the process's CPU time.
Reads are how often the host would take something from a GPU for a draft, the finished draft included.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.device_reads import DeviceReads
from benchmarks.memory import allocations
from benchmarks.timing import interleaved, machine, ratios
from forerun.distributions import Processing, SamplingParams
from forerun.drafters import (
    BlockInputs,
    Borrowed,
    Drafter,
    DrafterSession,
    DraftVocabulary,
    MaskTokenConfig,
    NetworkDrafter,
    PromptLookup,
    SuffixLookup,
    network_of,
)
from forerun.models import TransformersTarget, load_target
from forerun.recipes import DRAFTERS, drafter_config

HORIZONS = (1, 2, 4, 8, 16)
CONTEXT = 128
DRAFT_VOCABULARY = 8192
_FEW_ANCHORS, _MANY_ANCHORS = 8, 24


def measure(quick: bool) -> dict[str, Any]:
    """Tables to standard error, numbers for the JSON line.

    Args:
        quick: few repeats.
    """
    target = load_target("smollm2-135m", optimize=True)
    repeats = 5 if quick else 25
    ids = torch.arange(CONTEXT + 1) * 37 % 10_000 + 100
    rows: dict[str, Any] = {}
    for name, drafter in _drafters(target).items():
        session = _started(drafter, target, ids[:CONTEXT])
        rows[name] = {
            "dependence": drafter.dependence.value,
            "saving": drafter.saving.value,
            "target_steps": _cost(session, target, ids, repeats),
            "reads": _reads(session, ids, max(HORIZONS)),
        }
        if isinstance(drafter, NetworkDrafter):
            rows[name] |= _training_memory(drafter, target)
        _print(name, rows[name])
    return {
        "benchmark": "drafters",
        "target": target.name,
        "context": CONTEXT,
        "draft_vocabulary": DRAFT_VOCABULARY,
        "unit": "target steps of one token, processor time, turn by turn",
        "drafters": rows,
        "machine": machine(),
    }


def _drafters(target: TransformersTarget) -> dict[str, Drafter]:
    vocabulary = DraftVocabulary(torch.arange(DRAFT_VOCABULARY), target.vocab_size)
    made: dict[str, Drafter] = {
        "prompt-lookup": PromptLookup(target.vocab_size, max_horizon=max(HORIZONS)),
        "suffix-lookup": SuffixLookup(target.vocab_size, max_horizon=max(HORIZONS)),
    }
    for name in DRAFTERS:
        settings = [f"block_size={max(HORIZONS)}", f"draft_vocab_size={DRAFT_VOCABULARY}"]
        config = drafter_config(name, target, settings)
        if isinstance(config, MaskTokenConfig):
            continue  # its drafts cost passes of a whole model, or ride in the target's own (guide: mask-token.md)
        network = network_of(config)
        network.initialise(target, vocabulary, generator=torch.Generator().manual_seed(0))
        made[name] = NetworkDrafter(network, vocabulary, target)
    return made


def _started(drafter: Drafter, target: TransformersTarget, ids: Tensor) -> DrafterSession:
    session = drafter.new_session()
    step = target.forward(ids, target.new_cache(), captured=drafter.captured_layers, num_logits=1)
    session.extend(ids, step.features)
    return session


def _propose(session: DrafterSession, ids: Tensor, horizon: int) -> object:
    uniforms = torch.linspace(0.1, 0.9, horizon, dtype=torch.float64)
    return session.propose(int(ids[-1]), horizon, Processing(SamplingParams(), ids.tolist()), uniforms=uniforms).read()


def _cost(session: DrafterSession, target: TransformersTarget, ids: Tensor, repeats: int) -> dict[str, Any]:
    cache = target.new_cache()
    target.forward(ids[:CONTEXT], cache, num_logits=1)

    def step() -> None:
        target.forward(ids[CONTEXT:], cache)
        cache.rollback(CONTEXT)

    ways: dict[str, Callable[[], object]] = {"step": step}
    ways |= {str(horizon): partial(_propose, session, ids, horizon) for horizon in HORIZONS}
    seconds = interleaved(ways, repeats=repeats, warmups=2, clock=time.process_time)
    return {str(horizon): ratios(seconds[str(horizon)], seconds["step"]) for horizon in HORIZONS}


def _reads(session: DrafterSession, ids: Tensor, horizon: int) -> int:
    with DeviceReads(host=[ids]) as reads:
        _propose(session, ids, horizon)
    return int(reads.count)


def _training_memory(drafter: NetworkDrafter, target: TransformersTarget) -> dict[str, float]:
    """Kilobytes that one more anchor keeps alive for the backward pass, and needs at most on the way."""
    network = network_of(drafter.config)
    borrowed = Borrowed.of(target, drafter.vocabulary, dtype=torch.float32, device="cpu")
    slots, layers = drafter.config.block_size, len(drafter.captured_layers)

    def forward(anchors: int) -> object:
        places = torch.arange(anchors)[None] + 64
        token_ids = torch.arange(CONTEXT)[None]
        inputs = BlockInputs(
            token_ids=token_ids,
            features=torch.zeros(1, CONTEXT, layers, target.hidden_size),
            anchors=places,
            previous=token_ids[0][places[..., None] + torch.arange(slots)],
        )
        return network.teach(inputs, borrowed)

    few, many = (allocations(partial(forward, anchors)) for anchors in (_FEW_ANCHORS, _MANY_ANCHORS))
    extra = (_MANY_ANCHORS - _FEW_ANCHORS) * 1024
    return {
        "kept_kib_per_anchor": round((many.left - few.left) / extra, 1),
        "peak_kib_per_anchor": round((many.peak - few.peak) / extra, 1),
    }


def _print(name: str, row: dict[str, Any]) -> None:
    costs = "  ".join(f"{horizon}: {row['target_steps'][str(horizon)]['median']:.2f}" for horizon in HORIZONS)
    memory = f"  {row['kept_kib_per_anchor']} KiB/anchor" if "kept_kib_per_anchor" in row else ""
    print(f"{name:16} {costs}  reads {row['reads']}{memory}", file=sys.stderr)
