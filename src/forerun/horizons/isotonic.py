"""Non-decreasing fit and filling of a curve of which some points were measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice, pairwise
from math import inf
from operator import le


def isotonic(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The non-decreasing sequence nearest to `values` in weighted least squares (pool adjacent violators).

    Args:
        values: one number for each point, in order; a curve that does not fall comes back as it is.
        weights: as many, above 0; not looked at where nothing falls.

    Example:
        >>> isotonic([1.0, 3.0, 2.0, 4.0], [1.0, 1.0, 1.0, 1.0])
        [1.0, 2.5, 2.5, 4.0]
    """
    rises = list(map(le, values, islice(values, 1, None)))
    if all(rises):
        return list(values)
    start = rises.index(False) + 1  # what comes before the first fall is in order already
    means, totals, counts = list(values[:start]), list(weights[:start]), [1] * start
    for mean, total in zip(values[start:], weights[start:], strict=True):
        count = 1
        while means and means[-1] > mean:
            before = totals.pop()
            mean = (means.pop() * before + mean * total) / (before + total)
            total += before
            count += counts.pop()
        means.append(mean)
        totals.append(total)
        counts.append(count)
    return [mean for mean, count in zip(means, counts, strict=True) for _ in range(count)]


def fill_between(points: Mapping[int, float]) -> list[float]:
    """A curve over 0..max(points): the points, straight lines between neighbours, infinity before the first.

    Example:
        >>> fill_between({1: 2.0, 3: 4.0})
        [inf, 2.0, 3.0, 4.0]
    """
    known = sorted(points)
    if not known:
        return []
    if known[-1] - known[0] + 1 == len(known):
        return [inf] * known[0] + [points[place] for place in known]
    curve = [inf] * known[0] + [points[known[0]]]
    for left, right in pairwise(known):
        step = (points[right] - points[left]) / (right - left)
        curve += [points[left] + step * offset for offset in range(1, right - left)]
        curve.append(points[right])
    return curve
