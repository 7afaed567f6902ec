"""Non-decreasing fit and filling of a curve of which some points were measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import inf


def isotonic(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The non-decreasing sequence nearest to `values` in weighted least squares (pool adjacent violators).

    Args:
        values: one number for each point, in order.
        weights: as many, above 0.

    Example:
        >>> isotonic([1.0, 3.0, 2.0, 4.0], [1.0, 1.0, 1.0, 1.0])
        [1.0, 2.5, 2.5, 4.0]
    """
    pools: list[tuple[float, float, int]] = []  # mean, weight, number of points
    for value, weight in zip(values, weights, strict=True):
        mean, total, count = value, weight, 1
        while pools and pools[-1][0] > mean:
            before, before_total, before_count = pools.pop()
            mean = (before * before_total + mean * total) / (before_total + total)
            total += before_total
            count += before_count
        pools.append((mean, total, count))
    return [mean for mean, _, count in pools for _ in range(count)]


def fill_between(points: Mapping[int, float]) -> list[float]:
    """A curve over 0..max(points): the points, straight lines between neighbours, infinity before the first.

    Example:
        >>> fill_between({1: 2.0, 3: 4.0})
        [inf, 2.0, 3.0, 4.0]
    """
    known = sorted(points)
    if not known:
        return []
    curve = [inf] * known[0] + [points[known[0]]]
    for left, right in pairwise(known):
        step = (points[right] - points[left]) / (right - left)
        curve += [points[left] + step * offset for offset in range(1, right - left)]
        curve.append(points[right])
    return curve
