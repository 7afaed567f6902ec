"""What could be had at best on fixed texts, from the least to the most foresight.

| oracle | knows | may be compared with |
|---|---|---|
| best fixed | in hindsight which single horizon is best | regret of bandits |
| per context | the survivals of each position, not the sample | AMTP's regret |
| per signal | a world's law and the signals of each position | what a learner can reach |
| clairvoyant per round | how many drafts stand at this position | nothing: it has luck that nobody can have |
| clairvoyant | how many stand at every position | nothing, likewise |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from jaxtyping import Float64, Int64

from forerun.errors import ForerunError
from forerun.evaluation.replay.cost_regime import CostRegime
from forerun.evaluation.replay.track import Track

RENEWAL_STEPS = 8
"""Dinkelbach's iteration converges faster than any geometric series; a few steps reach the last digit."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OracleRun:
    """Totals of an oracle over tracks, one entry for each."""

    name: str
    emitted: tuple[int, ...]
    seconds: tuple[float, ...]

    @property
    def throughput(self) -> float:
        """Tokens per second, a ratio of sums."""
        return sum(self.emitted) / sum(self.seconds)


def best_fixed(tracks: Sequence[Track], costs: CostRegime) -> OracleRun:
    """The horizon with the most tokens per second over all the tracks together; ties go to the smaller one."""
    window = max(track.max_limit for track in tracks)
    runs = [
        _walked(f"best fixed (k={horizon})", tracks, costs, [np.full(len(track), horizon) for track in tracks])
        for horizon in range(window + 1)
    ]
    return max(runs, key=lambda run: run.throughput)


def per_context(tracks: Sequence[Track], costs: CostRegime) -> OracleRun:
    """At every position the horizon with the largest G(k) / E[C(k)]: AMTP's comparator."""
    return _walked("per context", tracks, costs, [per_context_horizons(track, costs) for track in tracks])


def per_context_renewal(tracks: Sequence[Track], costs: CostRegime) -> OracleRun:
    """At every position the horizon with the largest G(k) - lambda E[C(k)], lambda the throughput that this brings.

    The long-run rate is a ratio of sums, and where contexts follow each other independently this is the rule that
    maximises it. Where easy and hard stretches last for many rounds it need not be: a token of a hard stretch saves
    more than the average token's time, and the ratio of the round itself is the better guide.
    """
    run = per_context(tracks, costs)
    for _ in range(RENEWAL_STEPS):
        rate = run.throughput
        horizons = [renewal_horizons(track, costs, rate=rate) for track in tracks]
        run = _walked("per context, renewal", tracks, costs, horizons)
    return run


def per_signal(tracks: Sequence[Track], costs: CostRegime) -> OracleRun:
    """Per context for somebody who knows the world's law but sees the signals only: part of the gap is unavoidable."""
    told = [replace(track, survivals=track.told_survivals) for track in tracks]
    plans = [per_context_horizons(track, costs) for track in told]
    return _walked("per signal", tracks, costs, plans)


def per_context_horizons(track: Track, costs: CostRegime) -> Int64[np.ndarray, " positions"]:
    """The smallest maximiser of G(k) / E[C(k)] at each position."""
    return _best(_gains(track) / _mean_seconds(track, costs), track.limits)


def renewal_horizons(track: Track, costs: CostRegime, *, rate: float) -> Int64[np.ndarray, " positions"]:
    """The smallest maximiser of G(k) - rate E[C(k)] at each position."""
    return _best(_gains(track) - rate * _mean_seconds(track, costs), track.limits)


def rates(track: Track, costs: CostRegime) -> Float64[np.ndarray, "positions horizons"]:
    """G(k) / E[C(k)] at each position; -inf above its limit."""
    table = _gains(track) / _mean_seconds(track, costs)
    return np.where(np.arange(table.shape[1]) <= track.limits[:, None], table, -np.inf)


def clairvoyant_per_round(tracks: Sequence[Track], costs: CostRegime) -> OracleRun:
    """In every round the horizon with the largest realised tokens per second."""
    horizons = []
    for track in tracks:
        seconds = _realised_seconds(track, costs)
        emitted = 1 + np.minimum(np.arange(seconds.shape[1]), np.array(track.accepted)[:, None])
        horizons.append(_best(emitted / seconds, track.limits))
    return _walked("clairvoyant per round", tracks, costs, horizons)


def clairvoyant(tracks: Sequence[Track], costs: CostRegime) -> OracleRun:
    """The least time in which the texts can be written, by dynamic programming from their ends.

    V(i) = min over k <= limit of C(k) + V(i + 1 + min(k, accepted at i)), V = 0 behind the end.
    """
    emitted, seconds = [], []
    for track in tracks:
        costs_at, limits = _realised_seconds(track, costs), track.limits
        window = costs_at.shape[1] - 1
        rest = np.zeros(len(track) + window + 1)
        steps = np.arange(window + 1)
        for position in range(len(track) - 1, -1, -1):
            top = limits[position] + 1
            after = position + 1 + np.minimum(steps[:top], track.accepted[position])
            rest[position] = (costs_at[position, :top] + rest[after]).min()
        emitted.append(len(track))
        seconds.append(float(rest[0]))
    return OracleRun(name="clairvoyant", emitted=tuple(emitted), seconds=tuple(seconds))


def _walked(
    name: str, tracks: Sequence[Track], costs: CostRegime, horizons: Sequence[Int64[np.ndarray, " positions"]]
) -> OracleRun:
    """Totals of a plan that has a horizon for every position."""
    emitted, seconds = [], []
    for track, plan in zip(tracks, horizons, strict=True):
        drafted = np.minimum(plan, track.limits)
        time = _realised_seconds(track, costs)[np.arange(len(track)), drafted]
        steps = (1 + np.minimum(drafted, track.accepted)).tolist()
        visited, position = [], 0
        while position < len(track):
            visited.append(position)
            position += steps[position]
        emitted.append(len(track))
        seconds.append(float(time[visited].sum()))
    return OracleRun(name=name, emitted=tuple(emitted), seconds=tuple(seconds))


def _gains(track: Track) -> Float64[np.ndarray, "positions horizons"]:
    if track.survivals is None:
        raise ForerunError(f"the survivals of {track.name} are not known: only a simulation has a per-context oracle")
    return np.concatenate([np.ones((len(track), 1)), 1.0 + np.cumsum(track.survivals, axis=1)], axis=1)


def _mean_seconds(track: Track, costs: CostRegime) -> Float64[np.ndarray, "positions horizons"]:
    assert track.survivals is not None
    return costs.mean_seconds(track.survivals, track.context_lengths)


def _realised_seconds(track: Track, costs: CostRegime) -> Float64[np.ndarray, "positions horizons"]:
    horizons = np.arange(track.max_limit + 1)
    rejected = horizons > np.array(track.accepted)[:, None]
    return np.asarray(
        costs.round_seconds(horizons, track.context_lengths) + rejected * costs.rejection_seconds(horizons)
    )


def _best(
    table: Float64[np.ndarray, "positions horizons"], limits: Int64[np.ndarray, " positions"]
) -> Int64[np.ndarray, " positions"]:
    allowed = np.arange(table.shape[1]) <= limits[:, None]
    return np.asarray(np.argmax(np.where(allowed, table, -np.inf), axis=1))
