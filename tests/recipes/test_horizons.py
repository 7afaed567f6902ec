"""Names of horizon policies."""

import pytest

from forerun.errors import ForerunError
from forerun.horizons import AMTP, CostTable
from forerun.horizons.rivals import WindowedSurvival
from forerun.recipes import HORIZONS, horizon_named
from forerun.verification import Agreement, BlockVerification, Greedy, TokenLevel

RULE = TokenLevel()


def test_numbers_and_names() -> None:
    """Catches a number taken for a name, an alias that is none, and costs that do not arrive."""
    assert horizon_named("4", rule=RULE) == 4
    assert isinstance(horizon_named("adaptive", rule=RULE), AMTP)
    costs = CostTable.from_profile([(0, 1.0), (2, 1.5)])
    policy = horizon_named("windowed-survival-eps", rule=RULE, costs=costs)
    assert isinstance(policy, WindowedSurvival) and policy.costs is costs
    with pytest.raises(ForerunError, match="horizon is -3; give 0"):
        horizon_named("-3", rule=RULE)


@pytest.mark.parametrize("name", HORIZONS)
def test_policies_that_drop_tokens_have_to_be_asked_for(name: str) -> None:
    """Catches a biased combination that a name alone switches on, and a flag demanded for an exact one."""
    if HORIZONS[name](None).exact:
        assert horizon_named(name, rule=RULE)
        return
    for rule in (RULE, BlockVerification()):
        with pytest.raises(ForerunError, match=f"biases rule {rule.name}; add --lossy"):
            horizon_named(name, rule=rule)
        assert horizon_named(name, rule=rule, lossy=True)
    for safe in (Agreement(), Greedy()):
        assert horizon_named(name, rule=safe)


def test_neighbours_of_an_unknown_name() -> None:
    """A typing error is answered with what was meant, in one line."""
    with pytest.raises(ForerunError, match="did you mean ucb1, linucb") as caught:
        horizon_named("ucb", rule=RULE)
    assert "\n" not in str(caught.value)
