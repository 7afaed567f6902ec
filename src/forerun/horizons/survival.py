"""From rejection hazards to survivals, expected tokens and the best horizon.

Pure functions of plain numbers. They know neither where the hazards come from nor what is done with the horizon.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from forerun.errors import ForerunError


class Plan(NamedTuple):
    """What `best_horizon` found.

    Attributes:
        horizon: number of tokens to draft, the smallest maximiser of gain over cost.
        survivals: probability that the first j drafts are all accepted, j = 1..limit.
        invalid: how many hazards were NaN or outside [0, 1] and were read as 1.
    """

    horizon: int
    survivals: tuple[float, ...]
    invalid: int


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


def best_horizon(hazards: Sequence[float], costs: Sequence[float]) -> Plan:
    """The horizon k in 0..limit with the largest G(k) / C(k); ties go to the smaller k. O(limit).

    All k are looked at: measured costs are staircases, so the first descent of the ratio is not its maximum.

    Args:
        hazards: h_j, j = 1..limit. A hazard that is NaN or outside [0, 1] is read as 1 (a certain rejection: nothing
            is gained from a position about which nothing sensible is known) and counted in `Plan.invalid`.
        costs: C(k) in any one unit, k = 0..limit, each above 0. Infinity means "never choose this k".

    Raises:
        ForerunError: there are not limit + 1 costs, one is not above 0, or none is finite.

    Example:
        >>> best_horizon([0.1, 0.5, 0.9], [1.0, 1.2, 1.4, 1.6]).horizon
        2

    References:
        AMTP, throughput G / C, maximised in each round.
    """
    if len(costs) != len(hazards) + 1:
        raise ForerunError(
            f"{len(hazards)} hazards need {len(hazards) + 1} costs, horizon 0 included: got {len(costs)}"
        )
    reached = 1.0
    gain = 1.0
    best = 0
    best_ratio = 0.0
    curve = []
    invalid = 0
    for horizon, cost in enumerate(costs):
        if horizon:
            hazard = hazards[horizon - 1]
            if not 0.0 <= hazard <= 1.0:  # NaN compares false
                hazard = 1.0
                invalid += 1
            reached *= 1.0 - hazard
            gain += reached
            curve.append(reached)
        if not cost > 0.0:
            raise ForerunError(f"the cost of horizon {horizon} is {cost}: costs must be above 0")
        ratio = gain / cost
        if ratio > best_ratio:
            best = horizon
            best_ratio = ratio
    if best_ratio == 0.0:
        raise ForerunError("no horizon has a finite cost: measure at least one")
    return Plan(best, tuple(curve), invalid)
