"""From rejection hazards to survivals, expected tokens and the best horizon.

Pure functions of plain numbers. They know neither where the hazards come from nor what is done with the horizon.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from forerun.errors import ForerunError


class Plan(NamedTuple):
    """What `best_horizon` found.

    Attributes:
        horizon: number of tokens to draft, the smallest maximiser of gain over cost.
        survivals: probability that the first j drafts are all accepted, j = 1..limit.
        invalid: how many hazards were NaN or outside [0, 1] and were read as 1.
        renewal: the smallest maximiser of gain - rate * cost for the given rate, 0 where none was given.
    """

    horizon: int
    survivals: tuple[float, ...]
    invalid: int
    renewal: int = 0


def survivals(hazards: Sequence[float]) -> list[float]:
    """Probability that the first j drafts are all accepted: s_j = prod over i <= j of (1 - h_i), j = 1..K.

    Args:
        hazards: h_j = P(draft j is rejected | drafts before j are accepted), j = 1..K, each in [0, 1].

    Example:
        >>> survivals([0.25, 1 / 3])
        [0.75, 0.5]

    References:
        AMTP, acceptance survival. The hazard is the mismatch weighted with the survival of its prefix, not the mean
        mismatch: with the paper's binary example 1/3 and not 1/2.
    """
    curve = []
    reached = 1.0
    for hazard in hazards:
        reached *= 1.0 - hazard
        curve.append(reached)
    return curve


def gains(survivals: Sequence[float]) -> list[float]:
    """Expected tokens committed in a round: G(k) = 1 + sum over j <= k of s_j, k = 0..K.

    The 1 is the correction or bonus token that every round emits.

    Args:
        survivals: s_j, j = 1..K.

    Returns:
        K + 1 numbers; the first is G(0) = 1.

    Example:
        >>> gains([0.75, 0.5])
        [1.0, 1.75, 2.25]

    References:
        AMTP, expected committed tokens.
    """
    curve = [1.0]
    for survival in survivals:
        curve.append(curve[-1] + survival)
    return curve


def best_horizon(hazards: Sequence[float], costs: Sequence[float], *, rate: float | None = None) -> Plan:
    """The horizon k in 0..limit with the largest G(k) / C(k); ties go to the smaller k. O(limit).

    All k are looked at: measured costs are staircases, so the first descent of the ratio is not its maximum.

    Args:
        hazards: h_j, j = 1..limit. A hazard that is NaN or outside [0, 1] is read as 1 (a certain rejection: nothing
            is gained from a position about which nothing sensible is known) and counted in `Plan.invalid`.
        costs: C(k) in any one unit, k = 0..limit, each above 0. Infinity means "never choose this k".
        rate: lambda, tokens per unit of cost in the long run; with it the maximiser of G(k) - lambda C(k) comes too.

    Raises:
        ForerunError: there are not limit + 1 costs, one is not above 0, or none is finite.

    Example:
        >>> best_horizon([0.1, 0.5, 0.9], [1.0, 1.2, 1.4, 1.6]).horizon
        2

    Throughput over many rounds is sum G / sum C, a ratio of sums, and maximising each round's own ratio does not
    maximise it where contexts differ: the largest G(k) - lambda C(k) in each round does, lambda being the ratio of sums
    that this achieves (Dinkelbach; renewal reward). Two equally frequent contexts with s_j = 0.95^j and 0.3^j and
    C = 1 + k / 4, K = 8: ratios choose 8 and 1 and make 2.046 tokens per unit, the long-run rule 8 and 0, 2.099.

    References:
        AMTP, throughput G / C, maximised in each round.
    """
    if len(costs) != len(hazards) + 1:
        raise ForerunError(
            f"{len(hazards)} hazards need {len(hazards) + 1} costs, horizon 0 included: got {len(costs)}"
        )
    price = 0.0 if rate is None else rate
    best, top = 0.0, -inf
    horizon = renewal = invalid = 0
    gain = reached = 1.0
    curve: list[float] = []
    for k, cost in enumerate(costs):
        if k:
            hazard = hazards[k - 1]
            if not 0.0 <= hazard <= 1.0:
                hazard = 1.0
                invalid += 1
            reached *= 1.0 - hazard
            gain += reached
            curve.append(reached)
        if not cost > 0.0:
            raise ForerunError(f"the cost of horizon {k} is {cost}: costs must be above 0")
        ratio, profit = gain / cost, gain - price * cost
        if ratio > best:
            best, horizon = ratio, k
        if profit > top:
            top, renewal = profit, k
    if best == 0.0:
        raise ForerunError("no horizon has a finite cost: measure at least one")
    return Plan(horizon, tuple(curve), invalid, 0 if rate is None else renewal)
