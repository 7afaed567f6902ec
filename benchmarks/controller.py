"""What deciding horizons costs: microseconds of processor time by feature level, mode and batch.

A controller runs between two passes of the target, so its time is paid in full. One number is `propose` and `observe`
of one round with 16 positions planned and drafted (in the last row as many as AMTP itself drafts where 85 % of the
drafts would stand); another is the schedule of a pass of 64 requests with 16 positions each. All ways take turns, and
the clock is the process's processor time, which other processes disturb less. They still share its caches and, on
virtual machines, its core, so the fastest of all runs is nearest to an idle machine.

    python -m benchmarks controller
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.timing import interleaved, machine, spread
from forerun.engine.signals import Signals
from forerun.engine.token_classes import class_of_text
from forerun.horizons import (
    AMTP,
    HIDDEN_DIMS,
    CostSurface,
    CostTable,
    DraftTime,
    FeatureLevel,
    JointAMTP,
    Linear,
    PassTime,
    RoundContext,
    RoundFeedback,
    Seat,
    Signal,
    TokenClass,
    bucketed,
    ragged,
    uniform,
)
from forerun.models import tiny_target

LIMIT = 16
ROWS = 64
ROUNDS = 25
"""Rounds timed together: the clock's own call costs about a microsecond."""


def contexts(rng: random.Random, count: int) -> list[RoundContext]:
    """As an engine fills them for the highest level."""
    return [
        RoundContext(
            limit=LIMIT,
            context_length=100 + rng.randrange(300),
            generated=rng.randrange(300),
            temperature=1.0,
            target_entropy=2.0 * rng.random(),
            target_top_prob=rng.random(),
            target_margin=0.5 * rng.random(),
            last_token_repeats=rng.random() < 0.5,
            token_class=rng.choice(list(TokenClass)),
            suffix_match=rng.randrange(9),
            hidden=tuple(rng.gauss(0.0, 1.0) for _ in range(HIDDEN_DIMS)),
            draft_margins=tuple(3.0 * rng.random() for _ in range(LIMIT)),
        )
        for _ in range(count)
    ]


def table() -> CostTable:
    """As measured for SmolLM2 on a small CPU: a pass of 17 tokens costs about twice one of 1."""
    return CostTable.from_profile([(k, 1.0 + 0.06 * k) for k in range(LIMIT + 1)])


def played(policy: AMTP, rng: random.Random, *, uniform: float = 0.0, accept: float = 0.9) -> Callable[[], None]:
    """`ROUNDS` rounds of a policy that has learned from some before; uniform 0 drafts all positions."""
    costs = table().seconds(LIMIT)
    feedback: list[RoundFeedback] = []
    for context in contexts(rng, 8 * ROUNDS):
        choice = policy.propose(context, uniform=uniform)
        label = tuple(rng.uniform(2.0 * accept - 1.0, 1.0) for _ in range(choice.horizon))
        outcome = RoundFeedback(
            choice=choice,
            context=context,
            accepted=rng.randrange(choice.horizon + 1),
            accept_probabilities=label,
            overlaps=label,
            seconds=costs[choice.horizon] * rng.lognormvariate(0.0, 0.05),
        )
        policy.observe(outcome)
        feedback = [*feedback[1 - ROUNDS :], outcome]
    told = [outcome.context for outcome in feedback]

    def play() -> None:
        for context, outcome in zip(told, feedback, strict=True):
            policy.propose(context, uniform=0.5)
            policy.observe(outcome)

    return play


def controllers(rng: random.Random) -> dict[str, Callable[[], None]]:
    """`propose` and `observe` by feature level, and the theory mode."""
    ways = {level.value: played(AMTP(costs=table(), features=level, epsilon=1.0), rng) for level in FeatureLevel}
    theory = AMTP(
        costs=table(), features=FeatureLevel.F2, learner=Linear(), soft_labels=False, epsilon=1.0, warmup_rounds=0
    )
    usual = played(AMTP(costs=table()), rng, uniform=0.5, accept=0.85)
    return {**ways, "theory mode, F2": played(theory, rng), "F2, horizons of its own": usual}


def signals() -> dict[str, Callable[[], None]]:
    """What the engine computes for a round, by part, over a vocabulary of 49,152 and states of 576 numbers."""
    target = tiny_target(vocab_size=64)
    logits, state = torch.randn(49_152), torch.randn(1, 576)
    watched = {
        signal: Signals(target, frozenset({signal}), (1, 2, 3)) for signal in set(Signal) - {Signal.DRAFT_MARGINS}
    }

    def see(signal: Signal) -> None:
        for _ in range(ROUNDS):
            watched[signal].see(logits, state)

    def match() -> None:
        for token in range(ROUNDS):
            watched[Signal.SUFFIX_MATCH].push(token % 7)

    def classes() -> None:
        for _ in range(ROUNDS):
            class_of_text(" word")

    return {
        "target law": partial(see, Signal.TARGET_LAW),
        "hidden state, projected": partial(see, Signal.HIDDEN_STATE),
        "suffix match, a token": match,
        "token class, a new token": classes,
    }


def schedules(rng: random.Random) -> dict[str, Callable[[], object]]:
    """Searches over survivals that are given, and a whole joint decision."""
    source = np.random.default_rng(0)
    survivals = np.cumprod(1.0 - 0.5 * source.random((ROWS, LIMIT)), axis=1)
    verify = [1.0 + 0.01 * (n // 8) for n in range(ROWS * LIMIT + 1)]
    draft = [0.05 * k for k in range(LIMIT + 1)]
    limits = [LIMIT] * ROWS
    passes = [
        PassTime(width=ROWS * width, context_length=200, batch_size=ROWS, seconds=(1.0 + 0.3 * width,) * 3)
        for width in (1, 2, 4, 9, 17)
    ]
    surface = CostSurface.from_profile(passes, [DraftTime(tokens=k, seconds=(0.01 * k,) * 3) for k in (1, LIMIT)])
    joint = JointAMTP(costs=surface, warmup_rounds=0)
    seats: list[Seat] = [joint.seat() for _ in range(ROWS)]
    told = contexts(rng, ROWS)
    return {
        "ragged": lambda: ragged(survivals, verify),
        "ragged, drafted in a rectangle": lambda: ragged(survivals, verify, draft_seconds=draft),
        "uniform": lambda: uniform(survivals, verify, limits=limits, draft_seconds=draft),
        "two buckets": lambda: bucketed(survivals, verify, limits=limits, buckets=2, draft_seconds=draft),
        "joint AMTP, F2: features, hazards and schedule": lambda: joint.propose(seats, told, uniforms=[0.9] * ROWS),
    }


def measure(quick: bool) -> dict[str, Any]:
    """Microseconds of processor time, medians and quartiles."""
    rng = random.Random(0)
    repeats = 20 if quick else 200
    clock = time.process_time
    single = interleaved(controllers(rng), repeats=repeats, warmups=8, clock=clock)
    parts = interleaved(signals(), repeats=repeats, clock=clock)
    batch = interleaved(schedules(rng), repeats=repeats, clock=clock)
    return {
        "benchmark": "controller",
        "unit": "microseconds of processor time",
        "positions": LIMIT,
        "propose_and_observe": {name: _scaled(values, 1e6 / ROUNDS) for name, values in single.items()},
        "signals": {name: _scaled(values, 1e6 / ROUNDS) for name, values in parts.items()},
        "schedule_of_64_requests": {name: _scaled(values, 1e6) for name, values in batch.items()},
        "machine": machine(),
    }


def _scaled(values: list[float], factor: float) -> dict[str, float]:
    summary = {**spread(values), "fastest": min(values)}
    return {name: round(value * factor, 2) if name != "n" else value for name, value in summary.items()}
