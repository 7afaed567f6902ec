"""What deciding horizons costs: microseconds by feature level, mode and batch.

A controller runs between two passes of the target, so its time is paid in full. One number is `propose` and `observe`
of a round, 16 positions planned and drafted: once with rounds straight after each other, and once in situ, where 64 MiB
are read before each of the two, as a pass of the target does to the caches. Then the same where 16 are drafted by the
coin alone (inverse weights), in the theory mode, and with as many drafts as AMTP itself chooses where 85 % would stand.
Another number is the schedule of a pass of 64 requests with 16 positions each.

All ways take turns. Single rounds are timed with the wall clock: an interruption is longer than many rounds, so medians
and quartiles do not see it; what is timed in blocks is timed with the process's processor time. Other processes still
share caches and, on virtual machines, the core, so the fastest of all runs is nearest to an idle machine.

    python -m benchmarks controller
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any, final

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
"""Played in one turn; signals are timed in blocks as long."""
SWEPT_BYTES = 64 * 2**20

Rounds = Callable[[], list[float]]
"""Plays some rounds and returns the seconds of each."""


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


def table(step: float) -> CostTable:
    """A round of k drafts costs 1 + step * k."""
    return CostTable.from_profile([(k, 1.0 + step * k) for k in range(LIMIT + 1)])


@final
class Player:
    """Rounds of one policy, one after the other, each timed.

    Args:
        policy: learns on.
        rng: of what happens.
        step: of the costs.
        uniform: the coin; 0 drafts all positions.
        accept: mean chance of a draft to stand.
    """

    def __init__(
        self,
        policy: AMTP,
        rng: random.Random,
        *,
        step: float,
        uniform: float = 0.5,
        accept: float = 0.9,
    ) -> None:
        self._policy = policy
        self._rng = rng
        self._costs = table(step).seconds(LIMIT)
        self._uniform = uniform
        self._accept = accept
        self._contexts = contexts(rng, 8 * ROUNDS)

    def play(self, rounds: int = ROUNDS, *, before: Callable[[], object] = lambda: None) -> list[float]:
        """Seconds of `propose` and `observe` of each round, without what is done before each of the two calls."""
        policy, rng, clock = self._policy, self._rng, time.perf_counter
        seconds = []
        for context in rng.choices(self._contexts, k=rounds):
            before()
            started = clock()
            choice = policy.propose(context, uniform=self._uniform)
            proposed = clock() - started
            label = tuple(rng.uniform(2.0 * self._accept - 1.0, 1.0) for _ in range(choice.horizon))
            feedback = RoundFeedback(
                choice=choice,
                context=context,
                accepted=rng.randrange(choice.horizon + 1),
                accept_probabilities=label,
                overlaps=label,
                seconds=self._costs[choice.horizon] * rng.lognormvariate(0.0, 0.05),
            )
            before()
            started = clock()
            policy.observe(feedback)
            seconds.append(proposed + clock() - started)
        return seconds


def controllers(rng: random.Random) -> tuple[dict[str, Rounds], dict[str, Rounds]]:
    """AMTP by feature level and in other modes, each after 200 rounds; then some of them in situ."""
    cheap, usual = 0.01, 0.06
    ladder = {level.value: Player(AMTP(costs=table(cheap), features=level), rng, step=cheap) for level in FeatureLevel}
    theory = AMTP(costs=table(usual), learner=Linear(), soft_labels=False, epsilon=1.0, warmup_rounds=0)
    modes = {
        "F2, drafted by the coin": Player(AMTP(costs=table(usual), epsilon=1.0), rng, step=usual, uniform=0.0),
        "theory mode, F2": Player(theory, rng, step=usual, uniform=0.0),
        "F2, horizons of its own": Player(AMTP(costs=table(usual)), rng, step=usual, accept=0.85),
    }
    for player in (*ladder.values(), *modes.values()):
        player.play(8 * ROUNDS)
    sweep = np.ones(SWEPT_BYTES // 8).sum
    in_situ: dict[str, Rounds] = {
        f"{name}, in situ": partial(ladder[name].play, 1, before=sweep) for name in ("F0", "F1", "F2", "F3")
    }
    return {name: player.play for name, player in {**ladder, **modes}.items()}, in_situ


def in_turns(ways: dict[str, Rounds], repeats: int) -> dict[str, list[float]]:
    """Seconds of single rounds; the first ones of a turn are left out, which find another policy in the caches."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(repeats):
        first = turn % len(ways)
        for name in (*list(ways)[first:], *list(ways)[:first]):
            timed = ways[name]()
            seconds[name] += timed[len(timed) // 5 :]
    return seconds


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
    """Medians and quartiles."""
    rng = random.Random(0)
    repeats = 20 if quick else 200
    clock = time.process_time
    warm, in_situ = controllers(rng)
    single = in_turns(warm, repeats) | in_turns(in_situ, repeats)
    parts = interleaved(signals(), repeats=repeats, clock=clock)
    batch = interleaved(schedules(rng), repeats=repeats, clock=clock)
    return {
        "benchmark": "controller",
        "unit": "microseconds",
        "positions": LIMIT,
        "propose_and_observe": {name: _scaled(values, 1e6) for name, values in single.items()},
        "signals": {name: _scaled(values, 1e6 / ROUNDS) for name, values in parts.items()},
        "schedule_of_64_requests": {name: _scaled(values, 1e6) for name, values in batch.items()},
        "machine": machine(),
    }


def _scaled(values: list[float], factor: float) -> dict[str, float]:
    summary = {**spread(values), "fastest": min(values)}
    return {name: round(value * factor, 2) if name != "n" else value for name, value in summary.items()}
