"""What drafting and verifying cost on this machine, measured apart, and the file that keeps it.

It times passes over made-up tokens: costs follow sizes, not what is said. Acceptance is not its business.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, final

import torch

from forerun.distributions import Processing, SamplingParams
from forerun.drafters import Drafter
from forerun.drafters.riders import RidingSession
from forerun.errors import ForerunError
from forerun.evaluation.origin import result_origin
from forerun.horizons import CostModel, CostSurface, DraftTime, PassTime
from forerun.models import Block, TransformersTarget

FORMAT = "forerun-profile/1"
WARMUPS = 2


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileConfig:
    """What is timed.

    Attributes:
        contexts: tokens in the cache.
        batch_sizes: requests decoded together.
        horizons: drafts verified for each request; 0 is plain decoding and always among them.
        repeats: timed runs of each shape, taken in turn.

    Raises:
        ForerunError: a number out of range.
    """

    contexts: tuple[int, ...] = (128, 512)
    batch_sizes: tuple[int, ...] = (1,)
    horizons: tuple[int, ...]
    repeats: int = 10

    def __post_init__(self) -> None:
        if min((*self.contexts, *self.batch_sizes, *self.horizons, self.repeats), default=0) < 1:
            raise ForerunError("contexts, batch sizes, horizons and repeats must all be at least 1, and none be empty")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CostProfile:
    """What was measured.

    Attributes:
        passes: of the target, by shape.
        drafts: by number of tokens, at the first context.
        config: what was timed.
    """

    passes: tuple[PassTime, ...]
    drafts: tuple[DraftTime, ...]
    config: ProfileConfig

    @property
    def surface(self) -> CostSurface:
        """Costs for an adaptive policy."""
        return CostSurface.from_profile(self.passes, self.drafts)

    def break_even(self, horizon: int, *, context: int, batch_size: int) -> float:
        """Tokens per round from which drafting so many is as fast as plain decoding: C(horizon) / C(0).

        Drafting goes request by request, as in this package's engine.
        """
        seconds = {
            one.width: median(one.seconds)
            for one in self.passes
            if (one.context_length, one.batch_size) == (context, batch_size)
        }
        drafting = {one.tokens: median(one.seconds) for one in self.drafts}[horizon] if horizon else 0.0
        return (seconds[batch_size * (1 + horizon)] + batch_size * drafting) / seconds[batch_size]


@torch.inference_mode()
def measure_costs(
    target: TransformersTarget,
    drafter: Drafter,
    config: ProfileConfig,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> CostProfile:
    """Time plain passes, verification passes and drafts.

    Args:
        target: the model.
        drafter: proposes for it.
        config: what is timed.
        progress: told how many shapes are done, of how many.

    Raises:
        ForerunError: a context or horizon beyond what target or drafter can do, or a drafter that drafts in the
            verification pass.
    """
    longest = max(config.contexts) + max(config.horizons) + 1
    if longest > min(target.max_positions, drafter.max_positions or longest):
        raise ForerunError(
            f"contexts up to {max(config.contexts)} do not fit: {target.name} or {drafter.name} is shorter"
        )
    if max(config.horizons) > drafter.max_horizon:
        raise ForerunError(f"{drafter.name} drafts at most {drafter.max_horizon} tokens, not {max(config.horizons)}")
    if isinstance(drafter.new_session(), RidingSession):
        raise ForerunError(
            f"{drafter.name} drafts in the verification pass, so there is no draft to time; amtp measures whole rounds"
        )
    shapes = [(batch, context) for batch in config.batch_sizes for context in config.contexts]
    passes: list[PassTime] = []
    for done, (batch, context) in enumerate(shapes):
        progress(done, len(shapes) + 1)
        passes += _passes(target, config, batch=batch, context=context)
    progress(len(shapes), len(shapes) + 1)
    drafts = _drafts(target, drafter, config)
    progress(len(shapes) + 1, len(shapes) + 1)
    return CostProfile(passes=tuple(passes), drafts=tuple(drafts), config=config)


def write_profile(path: Path, profile: CostProfile, target: TransformersTarget, drafter: Drafter, command: str) -> None:
    """Write the costs, what they were measured on, and with what."""
    content = {
        **result_origin(target, format=FORMAT, command=command),
        "drafter": drafter.name,
        "repeats": profile.config.repeats,
        "costs": profile.surface.state_dict(),
    }
    path.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def read_profile(path: Path, *, target_name: str, drafter_name: str) -> CostModel:
    """The costs of a file that `write_profile` wrote.

    Raises:
        ForerunError: another kind of file, or measured for another pair.
    """
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ForerunError(f"{path}: not a JSON file; forerun profile writes one") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT or not {"target", "drafter", "costs"} <= data.keys():
        raise ForerunError(f"{path}: no cost profile ({FORMAT}); forerun profile writes one")
    measured = data["target"]["name"], data["drafter"]
    if measured != (target_name, drafter_name):
        raise ForerunError(
            f"{path} was measured for {measured[0]} with {measured[1]}, not for {target_name} with {drafter_name}"
        )
    return CostSurface.from_state_dict(data["costs"])


def _passes(target: TransformersTarget, config: ProfileConfig, *, batch: int, context: int) -> list[PassTime]:
    """All horizons in turn at one shape, so that a slow spell of the machine meets them all."""
    ids = _words(target, context + max(config.horizons) + 1)
    rows, clock = target.new_batch(), target.clock
    caches = [rows.add() for _ in range(batch)]
    target.forward_batch([Block(cache=cache, token_ids=ids[:context]) for cache in caches], num_logits=1)
    horizons = sorted({0, *config.horizons})
    seconds: dict[int, list[float]] = {horizon: [] for horizon in horizons}
    for turn in range(WARMUPS + config.repeats):
        for horizon in horizons:
            blocks = [Block(cache=cache, token_ids=ids[context : context + 1 + horizon]) for cache in caches]
            began = clock.mark()
            target.forward_batch(blocks)
            ended = clock.mark()
            clock.wait()
            if turn >= WARMUPS:
                seconds[horizon].append(clock.seconds(began, ended))
            for cache in caches:
                cache.rollback(context)
    return [
        PassTime(width=batch * (1 + horizon), context_length=context, batch_size=batch, seconds=tuple(values))
        for horizon, values in seconds.items()
    ]


def _drafts(target: TransformersTarget, drafter: Drafter, config: ProfileConfig) -> list[DraftTime]:
    context, clock = config.contexts[0], target.clock
    ids = _words(target, context + 1)
    step = target.forward(ids[:context], target.new_cache(), captured=drafter.captured_layers, num_logits=1)
    prompt = tuple(ids.tolist())
    seconds: dict[int, list[float]] = {horizon: [] for horizon in sorted(config.horizons)}
    for turn in range(WARMUPS + config.repeats):
        for horizon, values in seconds.items():
            session = drafter.new_session()
            session.extend(ids[:context], step.features)
            processing = Processing(SamplingParams(), prompt, stop_ids=())
            uniforms = torch.full((horizon,), 0.5, dtype=torch.float64)
            began = clock.mark()
            session.propose(prompt[-1], horizon, processing, uniforms=uniforms)
            ended = clock.mark()
            clock.wait()
            if turn >= WARMUPS:
                values.append(clock.seconds(began, ended))
    return [DraftTime(tokens=horizon, seconds=tuple(values)) for horizon, values in seconds.items()]


def _words(target: TransformersTarget, count: int) -> torch.Tensor:
    return torch.arange(count) * 37 % target.vocab_size
