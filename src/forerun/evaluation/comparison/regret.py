"""How far a controller stays behind the per-context oracle, on the contexts that it visits itself."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from jaxtyping import Float64

from forerun.evaluation.replay import CostRegime, Replayed, Track, rates

RECOVERED = 0.9
RECOVERY_WINDOW = 20


def throughput_regret(run: Replayed, tracks: Sequence[Track], costs: CostRegime) -> Float64[np.ndarray, " rounds"]:
    """max_k G(k) / C(k) - G(k_t) / C(k_t) of each round, with the true survivals.

    Args:
        run: replayed.
        tracks: on these.
        costs: under this regime.
    """
    best, own = _rates(run, tracks, costs)
    return np.asarray(best - own)


def recovery_rounds(
    run: Replayed, tracks: Sequence[Track], costs: CostRegime, shifts: Sequence[int]
) -> tuple[int, ...]:
    """Rounds from each shift until the last 20 reach 90 % of what was possible in them.

    Possible is the per-context optimum of the same rounds. A shift from which a run does not recover before the next
    one counts with all the rounds in between.

    Args:
        run: replayed.
        tracks: on these.
        costs: under this regime.
        shifts: token counts over all tracks at which the law jumps.
    """
    best, own = _rates(run, tracks, costs)
    starts = np.concatenate([[0], np.cumsum([len(track) for track in tracks])])
    tokens = starts[run.tracks] + run.positions
    borders = [*np.searchsorted(tokens, shifts).tolist(), len(run)]
    found = []
    for first, last in pairwise(borders):
        if last - first < RECOVERY_WINDOW:
            found.append(last - first)
            continue
        kernel = np.ones(RECOVERY_WINDOW)
        share = np.convolve(own[first:last], kernel, "valid") / np.convolve(best[first:last], kernel, "valid")
        reached = np.flatnonzero(share >= RECOVERED)
        found.append(int(reached[0]) + RECOVERY_WINDOW if len(reached) else last - first)
    return tuple(found)


def _rates(
    run: Replayed, tracks: Sequence[Track], costs: CostRegime
) -> tuple[Float64[np.ndarray, " rounds"], Float64[np.ndarray, " rounds"]]:
    best, own = np.empty(len(run)), np.empty(len(run))
    for index, track in enumerate(tracks):
        chosen = run.tracks == index
        table = rates(track, costs)[run.positions[chosen]]
        best[chosen] = table.max(axis=1)
        own[chosen] = table[np.arange(len(table)), run.horizons[chosen]]
    return best, own
