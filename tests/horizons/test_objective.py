"""G / C against G - lambda C: the published numbers, and what AMTP does with both."""

from collections.abc import Callable

import pytest

from forerun.horizons import (
    AMTP,
    CostTable,
    Objective,
    RoundContext,
    RoundFeedback,
    best_horizon,
    gains,
    survivals,
)
from forerun.horizons.objective import LongRunRate


def long_run(contexts: list[list[float]], costs: list[float], chosen: Callable[[list[float]], int]) -> float:
    """Tokens per unit over equally frequent contexts: a ratio of sums."""
    ks = [chosen(hazards) for hazards in contexts]
    tokens = sum(gains(survivals(hazards))[k] for hazards, k in zip(contexts, ks, strict=True))
    return tokens / sum(costs[k] for k in ks)


def dinkelbach(contexts: list[list[float]], costs: list[float]) -> tuple[list[int], float]:
    """The fixed point of lambda = what its own choices achieve."""
    rate = 0.0
    for _ in range(50):
        rate = long_run(contexts, costs, lambda h, rate=rate: best_horizon(h, costs, rate=rate).renewal)  # type: ignore[misc]
    return [best_horizon(hazards, costs, rate=rate).renewal for hazards in contexts], rate


@pytest.mark.parametrize(
    ("easy", "hard", "limit", "step", "ratio", "ratio_rate", "renewal", "renewal_rate"),
    [
        (0.95, 0.3, 8, 0.25, [8, 1], 2.046, [8, 0], 2.099),
        (0.97, 0.45, 16, 0.02, [16, 4], 6.357, [16, 2], 6.409),
        (0.97, 0.45, 16, 0.05, [16, 3], 5.158, [16, 1], 5.236),
        (0.97, 0.45, 16, 0.10, [16, 2], 3.980, [16, 1], 4.033),
        (0.97, 0.45, 16, 0.20, [14, 1], 2.735, [16, 0], 2.783),
    ],
)
def test_two_contexts(
    easy: float, hard: float, limit: int, step: float,
    ratio: list[int], ratio_rate: float, renewal: list[int], renewal_rate: float,
) -> None:  # fmt: skip
    """Two equally frequent contexts with s_j = easy^j and hard^j. Catches lambda as a mean of ratios."""
    contexts = [[1.0 - easy] * limit, [1.0 - hard] * limit]
    costs = [1.0 + step * k for k in range(limit + 1)]
    assert [best_horizon(hazards, costs).horizon for hazards in contexts] == ratio
    assert long_run(contexts, costs, lambda h: best_horizon(h, costs).horizon) == pytest.approx(ratio_rate, abs=6e-4)
    chosen, rate = dinkelbach(contexts, costs)
    assert chosen == renewal
    assert rate == pytest.approx(renewal_rate, abs=6e-4)


def test_the_long_run_rate_is_a_ratio_of_running_means() -> None:
    """Tokens 1 and 9 in 1 and 3 seconds make 2.5, not (1 + 3) / 2; before the first round the best ratio counts."""
    rate = LongRunRate()
    assert rate.value is None
    assert rate.value_or([0.5], [1.0, 1.2]) == pytest.approx(1.25)
    rate.observe(1, 1.0)
    rate.observe(9, 3.0)
    assert rate.value == pytest.approx(2.5)


def test_amtp_plans_by_its_objective_and_reports_both() -> None:
    """Hard round behind fast ones: the ratio drafts one token, the long run none; both stand in the choice."""
    table = CostTable.from_profile([(k, 1.0 + 0.25 * k) for k in range(9)])
    context = RoundContext(limit=8, context_length=9, generated=1, temperature=1.0)
    for objective, planned in ((Objective.RATIO, 1), (Objective.RENEWAL, 0)):
        policy = AMTP(costs=table, learn_costs=False, objective=objective, epsilon=0.0, prior_hazards=(0.7,))
        for _ in range(3):
            choice = policy.propose(context, uniform=0.5)
            ones = (1.0,) * choice.horizon
            policy.observe(
                RoundFeedback(
                    choice=choice, context=context, accepted=choice.horizon, accept_probabilities=ones, overlaps=ones,
                    seconds=0.3 * (choice.horizon + 1),
                )
            )  # fmt: skip
        choice = policy.propose(context, uniform=0.5)
        assert (choice.planned, choice.ratio_horizon, choice.renewal_horizon) == (planned, 1, 0)
        assert policy.report.tokens_per_second == pytest.approx(1.0 / 0.3)
        assert policy.report.disagreed >= 1
        assert policy.cost_table.state_dict() == table.state_dict()
