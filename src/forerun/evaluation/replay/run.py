"""Replaying: a policy's rounds along fixed texts, with the feedback that the engine would have given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float64, Int64

from forerun.evaluation.replay.cost_regime import CostRegime
from forerun.evaluation.replay.track import Track
from forerun.horizons import DrawnToken, HorizonPolicy, RoundFeedback, StopRule


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replayed:
    """Rounds in the order in which they ran.

    Attributes:
        policy: name.
        tracks: index of each round's track.
        positions: where in it the round began.
        horizons: drafted.
        emitted: tokens, correction or bonus included.
        seconds: true ones.
        predicted: survival of positions 1.. as the policy predicted it; nan where it predicted nothing.
    """

    policy: str
    tracks: Int64[np.ndarray, " rounds"]
    positions: Int64[np.ndarray, " rounds"]
    horizons: Int64[np.ndarray, " rounds"]
    emitted: Int64[np.ndarray, " rounds"]
    seconds: Float64[np.ndarray, " rounds"]
    predicted: Float64[np.ndarray, "rounds window"]

    def __len__(self) -> int:
        """Rounds."""
        return len(self.horizons)

    @property
    def throughput(self) -> float:
        """Tokens per second, a ratio of sums."""
        return float(self.emitted.sum() / self.seconds.sum())

    def part(self, first: int, last: int | None = None) -> Replayed:
        """Rounds from ``first`` up to and without ``last``."""
        chosen = slice(first, last)
        return Replayed(
            policy=self.policy,
            tracks=self.tracks[chosen],
            positions=self.positions[chosen],
            horizons=self.horizons[chosen],
            emitted=self.emitted[chosen],
            seconds=self.seconds[chosen],
            predicted=self.predicted[chosen],
        )


def replay(
    policy: HorizonPolicy, tracks: Sequence[Track], costs: CostRegime, *, max_rounds: int | None = None
) -> Replayed:
    """Run a policy along the tracks, one after the other; it goes on learning from each to the next.

    Position i leads to i + 1 + min(horizon, accepted at i). The policy is told what the engine would tell it: the
    accept probabilities and overlaps of the drafted tokens, how many stand, the seconds, and what a stop cut off.

    Args:
        policy: is changed; clone it first to keep it.
        tracks: in order.
        costs: seconds of rounds.
        max_rounds: stop after so many.
    """
    window = max(track.max_limit for track in tracks)
    horizon_range = np.arange(window + 1)
    rejection = costs.rejection_seconds(horizon_range).tolist()
    rows: list[tuple[int, int, int, int, float]] = []
    predicted: list[tuple[float, ...]] = []
    for index, track in enumerate(tracks):
        seconds_at = costs.round_seconds(horizon_range, track.context_lengths).tolist()
        position, end = 0, len(track)
        while position < end:
            if max_rounds is not None and len(rows) == max_rounds:
                return _replayed(policy.name, rows, predicted, window)
            context = track.contexts[position]
            choice = policy.propose(context, uniform=track.coins[position])
            window_here = track.drawn[position][: choice.horizon]
            drawn: tuple[DrawnToken, ...] = ()
            unused = 0
            if choice.stop is None:
                drafted = len(window_here)
            else:
                drawn, unused = drawn_under(choice.stop, window_here)
                drafted = len(drawn)
            accepted = min(drafted, track.accepted[position])
            seconds = seconds_at[position][drafted] + (rejection[drafted] if accepted < drafted else 0.0)
            if unused:
                seconds += costs.unused_seconds(drafted, drafted + unused)
            stop = track.censored[position]
            policy.observe(
                RoundFeedback(
                    choice=choice,
                    context=context,
                    accepted=accepted,
                    accept_probabilities=track.accept_probabilities[position][:drafted],
                    overlaps=track.overlaps[position][:drafted],
                    seconds=seconds * track.time_factors[position],
                    censored=None if stop is None or stop > drafted else stop,
                    drawn=drawn,
                )
            )
            emitted = min(accepted + 1, end - position)
            rows.append((index, position, drafted, emitted, seconds))
            predicted.append(choice.survival)
            position += emitted
    return _replayed(policy.name, rows, predicted, window)


def drawn_under(rule: StopRule, window: Sequence[DrawnToken]) -> tuple[tuple[DrawnToken, ...], int]:
    """The drafts that a stop rule lets through, and how many more of the window it saw a law or token of.

    Args:
        rule: of the choice.
        window: what would be drawn without it.
    """
    drawn: list[DrawnToken] = []
    seen = 0
    for token in window:
        seen += 1
        if not rule.draws(drawn, token.law):
            break
        drawn.append(token)
        if not rule.continues(drawn):
            break
    kept = tuple(drawn[: rule.submits(drawn)])
    return kept, seen - len(kept)


def _replayed(
    name: str, rows: list[tuple[int, int, int, int, float]], predicted: list[tuple[float, ...]], window: int
) -> Replayed:
    table = np.full((len(rows), window), np.nan)
    for index, survival in enumerate(predicted):
        table[index, : len(survival)] = survival
    counts = np.array([row[:4] for row in rows], dtype=np.int64).reshape(len(rows), 4)
    return Replayed(
        policy=name,
        tracks=counts[:, 0],
        positions=counts[:, 1],
        horizons=counts[:, 2],
        emitted=counts[:, 3],
        seconds=np.array([row[4] for row in rows]),
        predicted=table,
    )
