"""Interleaved timing: the ways of doing one thing run in turn, so that what disturbs the machine disturbs them all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median, quantiles
from typing import Any

import torch

from forerun import environment


def interleaved(
    ways: Mapping[str, Callable[[], object]],
    *,
    repeats: int,
    warmups: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of each way, ``repeats`` times in turn; each turn begins with another way."""
    names = list(ways)
    for name in names:
        for _ in range(warmups):
            ways[name]()
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(repeats):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            started = clock()
            ways[name]()
            seconds[name].append(clock() - started)
    return seconds


def spread(values: list[float]) -> dict[str, float]:
    """Median and quartiles."""
    low, _, high = quantiles(values, n=4) if len(values) > 1 else (values[0],) * 3
    return {"median": median(values), "lower_quartile": low, "upper_quartile": high, "n": len(values)}


def ratios(seconds: list[float], baseline: list[float]) -> dict[str, float]:
    """Spread of the turn-by-turn ratios ``seconds / baseline``."""
    return spread([each / base for each, base in zip(seconds, baseline, strict=True)])


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    return {
        "commit": environment.source_commit(),
        "cpu": environment.cpu_name(),
        "cores": environment.num_cores(),
        "threads": torch.get_num_threads(),
        "versions": environment.library_versions(),
    }
