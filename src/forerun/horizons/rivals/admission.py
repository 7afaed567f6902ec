"""Which drafted tokens of a batch are verified: DSpark's search, its budget form, and the search that is biased.

Survivals a[r][j] say how likely request r's first j + 1 drafts stand; they fall along a request, so admitting the
largest ones of the whole batch admits a prefix of each. Ties go to the smaller place, then to the smaller request:
never to token values. `seconds[n]` is the round's cost with n drafts admitted in all; the batch's throughput then is

    (requests + sum of admitted survivals) / seconds[n].
"""

from __future__ import annotations

from collections.abc import Sequence

from forerun.errors import ForerunError


def early_break(survivals: Sequence[Sequence[float]], seconds: Sequence[float]) -> list[int]:
    """Admit in falling order while the throughput does not fall; stop at the first drop.

    Exact although the survivals of position j may depend on the drafts before it: whether j is admitted is settled by
    survivals of position j or less of its own request. It is the best choice only where the throughput has one peak.

    Returns:
        Number of admitted drafts of each request.

    Example:
        >>> early_break([[0.9, 0.1], [0.8, 0.7]], [1.0, 1.1, 1.2, 1.3, 1.9])
        [1, 2]

    References:
        DSpark, arXiv 2607.05147, algorithm 1.
    """
    rates = _rates(survivals, seconds)
    count = next((n for n in range(len(rates) - 1) if rates[n + 1] < rates[n]), len(rates) - 1)
    return by_budget(survivals, count)


def by_budget(survivals: Sequence[Sequence[float]], budget: int) -> list[int]:
    """The `budget` most likely drafts of the batch. Exact where the budget comes from earlier rounds.

    References:
        DSpark, section 5.2; vLLM pull request 47808.
    """
    admitted = [0] * len(survivals)
    for _, _, request in _falling(survivals)[:budget]:
        admitted[request] += 1
    return admitted


def best_total(survivals: Sequence[Sequence[float]], seconds: Sequence[float]) -> list[int]:
    """The number of drafts with the largest throughput of all. **Biased** with this round's survivals.

    Whether position j is admitted then depends on survivals behind it, hence on token j. Exact only where no survival
    depends on any draft (AMTP's, or heads that do not see the drafts).

    References:
        DSpark, appendix A: 0.85 instead of 0.7.
    """
    rates = _rates(survivals, seconds)
    return by_budget(survivals, rates.index(max(rates)))


def _falling(survivals: Sequence[Sequence[float]]) -> list[tuple[float, int, int]]:
    return sorted(
        (-survival, place, request) for request, curve in enumerate(survivals) for place, survival in enumerate(curve)
    )


def _rates(survivals: Sequence[Sequence[float]], seconds: Sequence[float]) -> list[float]:
    order = _falling(survivals)
    if len(seconds) < len(order) + 1:
        raise ForerunError(f"{len(order)} drafts need {len(order) + 1} costs, got {len(seconds)}")
    tokens = float(len(survivals))
    rates = [tokens / seconds[0]]
    for count, (negative, _, _) in enumerate(order, start=1):
        tokens -= negative
        rates.append(tokens / seconds[count])
    return rates
