"""Names of horizon policies."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from forerun.errors import ForerunError
from forerun.horizons import AMTP, CostModel, Guarded, HorizonPolicy
from forerun.horizons.rivals import (
    EXP3,
    AdaEDL,
    CalibratedScheduler,
    Cascade,
    CensoredEMA,
    DynamicConfidence,
    EMATiers,
    EntropySwitch,
    HeuristicSchedule,
    LinUCB,
    Search,
    SpecDec,
    Staircase,
    TableBandit,
    TapOut,
    UpperConfidence,
    WindowedSurvival,
    bandit_spec,
    dropping,
    kangaroo,
    llama_cpp,
    svip,
)
from forerun.verification import Rule, TreeRule, Truncation

HORIZONS: dict[str, Callable[[CostModel | None], HorizonPolicy]] = {
    "amtp": lambda costs: AMTP(costs=costs),
    "amtp-guarded": lambda costs: Guarded(AMTP(costs=costs)),
    "heuristic": lambda _: HeuristicSchedule(),
    "heuristic-transient": lambda _: HeuristicSchedule(transient=True),
    "transformers-confidence": lambda _: DynamicConfidence(),
    "transformers-confidence-constant": lambda _: DynamicConfidence(refit=False),
    "llama-cpp": lambda _: llama_cpp(),
    "llama-p-min": lambda _: llama_cpp(n_max=16, p_min=0.9),
    "llama-staircase": lambda _: Staircase(),
    "llama-staircase-simple": lambda _: Staircase(climb=(1,)),
    "censored-ema": lambda _: CensoredEMA(),
    "sglang-ema": lambda _: EMATiers(),
    "windowed-survival": lambda costs: WindowedSurvival(costs=costs),
    "windowed-survival-eps": lambda costs: WindowedSurvival(costs=costs, epsilon=0.1),
    "windowed-survival-every-10": lambda costs: WindowedSurvival(costs=costs, decide_every=10),
    "windowed-survival-every-10-hysteresis": lambda costs: WindowedSurvival(
        costs=costs, decide_every=10, hysteresis=0.1
    ),
    "windowed-survival-ewma": lambda costs: WindowedSurvival(costs=costs, window=None),
    "windowed-survival-ewma-eps": lambda costs: WindowedSurvival(costs=costs, window=None, epsilon=0.1),
    "windowed-survival-ewma-hysteresis": lambda costs: WindowedSurvival(costs=costs, window=None, hysteresis=0.1),
    "ucb1": lambda costs: UpperConfidence(costs=costs),
    "discounted-ucb": lambda costs: UpperConfidence(costs=costs, discount=0.99, name="discounted-ucb"),
    "banditspec-style": lambda costs: bandit_spec(costs=costs),
    "banditspec-released": lambda costs: bandit_spec(costs=costs, as_released=True),
    "exp3": lambda costs: EXP3(costs=costs),
    "exp3-side-information": lambda costs: EXP3(costs=costs, side_information=True),
    "linucb": lambda costs: LinUCB(costs=costs),
    "table-bandit": lambda costs: TableBandit(costs=costs),
    "specdec-style": lambda _: SpecDec(),
    "svip": lambda _: svip(),
    "adaedl-style": lambda _: AdaEDL(),
    "kangaroo": lambda _: kangaroo(),
    "tapout-style": lambda _: TapOut(),
    "dspark-early-break": lambda costs: CalibratedScheduler(costs=costs),
    "dspark-stale-budget": lambda costs: CalibratedScheduler(costs=costs, search=Search.STALE_BUDGET),
    "entropy-switch-style": lambda _: EntropySwitch(),
    "cascade-style": lambda _: Cascade(),
    "dspark-same-round": lambda costs: CalibratedScheduler(costs=costs, search=Search.SAME_ROUND),
    "sampled-probability-cut": lambda _: dropping(),
}
"""Every policy by its name, made from the costs of rounds (None: to be measured on the way). The last two are negative
controls."""

ADAPTIVE = "adaptive"
"""Another name of AMTP."""


def horizon_named(
    name: str, *, rule: Rule | TreeRule, costs: CostModel | None = None, lossy: bool = False
) -> int | HorizonPolicy:
    """The fixed horizon or the policy of that name.

    Args:
        name: a number of tokens, `adaptive`, or one of ``HORIZONS``.
        rule: acceptance rule in use; one that bears any truncation keeps even a policy exact that drops tokens.
        costs: of rounds, where they are known.
        lossy: whether a combination that changes the output law is wanted too.

    Raises:
        ForerunError: unknown name (its neighbours are listed), a negative number, or a lossy combination that was not
            asked for as such.
    """
    if name.removeprefix("-").isdecimal():
        if int(name) < 0:
            raise ForerunError(f"horizon is {name}; give 0 (plain decoding) or more")
        return int(name)
    name = "amtp" if name == ADAPTIVE else name
    if name not in HORIZONS:
        near = difflib.get_close_matches(name, HORIZONS, n=5, cutoff=0.4) or list(HORIZONS)
        raise ForerunError(f"unknown horizon {name!r}; give a number of tokens, or did you mean {', '.join(near)}?")
    policy = HORIZONS[name](costs)
    if not policy.exact and rule.truncation is not Truncation.ANY_DRAFT and not lossy:
        raise ForerunError(
            f"horizon {name} drops tokens it has looked at, which biases rule {rule.name}; add --lossy if you want "
            "that, or take rule agreement"
        )
    return policy
