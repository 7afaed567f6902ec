"""Horizons of many requests that share one verification pass: pure functions of survivals and costs.

All survivals are predictions made before drafting, so any search over them keeps every request's output law.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from forerun.errors import ForerunError


class BatchSchedule(NamedTuple):
    """What a search found.

    Attributes:
        horizons: one for each request.
        tokens: expected number committed by the pass, one correction or bonus for each request included.
        seconds: of the round.
    """

    horizons: tuple[int, ...]
    tokens: float
    seconds: float

    @property
    def rate(self) -> float:
        """Expected tokens per second."""
        return self.tokens / self.seconds


def ragged(
    survivals: np.ndarray, verify_seconds: Sequence[float], *, draft_seconds: Sequence[float] | None = None
) -> BatchSchedule:
    """Horizons k_r that maximise (sum over r of G_r(k_r)) / C, each request its own.

    With n = sum of k_r drafts to verify, C = verify(n) + draft(max of k_r). For a given n, and a given largest horizon
    m, the numerator is largest when the n largest survivals of positions 1..m are taken; since survivals do not grow
    with the position, these are prefixes. So all (n, m) are tried: the cost may be any staircase, and the answer is the
    global maximum. Equal survivals go to the smaller position, then to the smaller row; equal rates to the smaller
    round: equal inputs give equal horizons on every rank.

    Args:
        survivals: (requests, positions), non-increasing along a row, each in [0, 1]. A request whose limit is smaller
            has zeros behind it: a position of survival 0 is never taken.
        verify_seconds: of a pass with n drafts besides the requests' last tokens, n = 0 .. requests * positions.
        draft_seconds: of drafting up to m tokens for all requests at once, m = 0 .. positions; None where drafting
            costs nothing, or its cost by token is part of `verify_seconds`.

    Raises:
        ForerunError: numbers that do not fit together.

    Example:
        >>> ragged(np.array([[0.9, 0.8], [0.3, 0.1]]), [1.0, 1.1, 1.2, 1.5, 1.8]).horizons
        (2, 0)

    References:
        adapted from the batch schedulers of DSpark and vLLM, which search while drafting and must stop early or use old
        scores; with survivals known before drafting the unrestricted search is exact.
    """
    rows, width, verify, draft = _checked(survivals, verify_seconds, draft_seconds)
    order = np.argsort(-survivals.T, axis=None, kind="stable")  # position first, then row
    positions = order // rows + 1
    values = survivals.T.ravel()[order]
    positive = int(np.count_nonzero(values > 0.0))
    positions, values, chosen_rows = positions[:positive], values[:positive], (order % rows)[:positive]
    best: tuple[float, int, int, float, float] | None = None
    largest = range(width + 1) if draft is not None else (width,)
    for deepest in largest:
        kept = values if deepest == width else values[positions <= deepest]
        tokens = np.concatenate([[0.0], np.cumsum(kept)]) + rows
        seconds = verify[: len(tokens)] + (0.0 if draft is None else draft[deepest])
        rates = tokens / seconds
        count = int(rates.argmax())
        if best is None or rates[count] > best[0]:
            best = float(rates[count]), deepest, count, float(tokens[count]), float(seconds[count])
    assert best is not None
    _, deepest, count, tokens_best, seconds_best = best
    taken = chosen_rows[positions <= deepest][:count]
    horizons = np.bincount(taken, minlength=rows)
    return BatchSchedule(tuple(horizons.tolist()), tokens_best, seconds_best)


def uniform(
    survivals: np.ndarray,
    verify_seconds: Sequence[float],
    *,
    limits: Sequence[int],
    draft_seconds: Sequence[float] | None = None,
) -> BatchSchedule:
    """One horizon k for all requests (each up to its limit): argmax over k of sum of G_r / C.

    For kernels that want equal query lengths or one graph for each k. Ties go to the smaller k.

    Args:
        survivals: see `ragged`.
        verify_seconds: see `ragged`.
        limits: largest horizon of each request.
        draft_seconds: see `ragged`.
    """
    return _best_levels(survivals, verify_seconds, limits, draft_seconds, [(k,) for k in range(survivals.shape[1] + 1)])


def bucketed(
    survivals: np.ndarray,
    verify_seconds: Sequence[float],
    *,
    limits: Sequence[int],
    buckets: int,
    draft_seconds: Sequence[float] | None = None,
) -> BatchSchedule:
    """At most `buckets` different horizons in the batch, each request in one of them.

    For every choice of levels the requests climb from level to level in the order of mean survival per added token.
    Means do not grow along a row, so each stage of the climb has the largest numerator for its number of drafts among
    all mixtures (the upper concave hull of a knapsack); every stage is priced. Optimal where C is affine in n; with
    steps a little may be left between two stages.

    Args:
        survivals: see `ragged`.
        verify_seconds: see `ragged`.
        limits: largest horizon of each request.
        buckets: 1 is `uniform`; 2 or 3 are usual.
        draft_seconds: see `ragged`.
    """
    if buckets < 1:
        raise ForerunError(f"buckets is {buckets}: give at least 1")
    width = survivals.shape[1]
    levels = list(combinations(range(width + 1), min(buckets, width + 1)))
    return _best_levels(survivals, verify_seconds, limits, draft_seconds, levels)


def _best_levels(
    survivals: np.ndarray,
    verify_seconds: Sequence[float],
    limits: Sequence[int],
    draft_seconds: Sequence[float] | None,
    choices: Sequence[tuple[int, ...]],
) -> BatchSchedule:
    rows, _, verify, draft = _checked(survivals, verify_seconds, draft_seconds)
    caps = np.asarray(limits)
    if len(caps) != rows:
        raise ForerunError(f"{rows} requests need {rows} limits, got {len(caps)}")
    gains = np.concatenate([np.zeros((rows, 1)), np.cumsum(survivals, axis=1)], axis=1)  # (rows, 0..width)
    best: BatchSchedule | None = None
    for levels in choices:
        heights = np.minimum(np.array(levels)[:, None], caps)  # (levels, rows)
        reached = np.take_along_axis(gains.T, heights, axis=0)
        added, won = np.diff(heights, axis=0).ravel(), np.diff(reached, axis=0).ravel()
        means = np.divide(won, added, out=np.full(len(won), -1.0), where=added > 0)
        order = np.argsort(-means, kind="stable")[: int(np.count_nonzero(added))]
        drafts = np.concatenate([[0], np.cumsum(added[order])]) + int(heights[0].sum())
        tokens = np.concatenate([[0.0], np.cumsum(won[order])]) + float(reached[0].sum()) + rows
        deepest = np.maximum.accumulate(np.concatenate([[heights[0].max()], heights[1:].ravel()[order]]))
        seconds = verify[drafts] + (0.0 if draft is None else draft[deepest])
        rates = tokens / seconds
        stage = int(rates.argmax())
        if best is None or rates[stage] > best.rate:
            climbed = np.bincount(order[:stage] % rows, minlength=rows)
            horizons = np.take_along_axis(heights, climbed[None], axis=0)[0]
            best = BatchSchedule(tuple(horizons.tolist()), float(tokens[stage]), float(seconds[stage]))
    assert best is not None
    return best


def _checked(
    survivals: np.ndarray, verify_seconds: Sequence[float], draft_seconds: Sequence[float] | None
) -> tuple[int, int, np.ndarray, np.ndarray | None]:
    if survivals.ndim != 2 or not len(survivals):
        raise ForerunError(f"survivals have shape {survivals.shape}: give (requests, positions), at least one request")
    rows, width = survivals.shape
    verify = np.asarray(verify_seconds)
    draft = None if draft_seconds is None else np.asarray(draft_seconds)
    if len(verify) != rows * width + 1 or (draft is not None and len(draft) != width + 1):
        raise ForerunError(
            f"{rows} requests of {width} positions need {rows * width + 1} verify costs and {width + 1} draft costs"
        )
    if not (verify > 0.0).all() or (draft is not None and not (draft >= 0.0).all()):
        raise ForerunError("verify costs must be above 0 and draft costs at least 0")
    return rows, width, verify, draft
