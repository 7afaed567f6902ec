"""Names of acceptance rules."""

import pytest

from forerun.errors import ForerunError
from forerun.recipes import RULES, rule_named


@pytest.mark.parametrize("name", RULES)
def test_names_are_the_rules_own(name: str) -> None:
    """Records name a rule by its own name; the command line must know it by the same one."""
    assert rule_named(name, lossy=True).name == name


@pytest.mark.parametrize("name", RULES)
def test_lossy_rules_have_to_be_asked_for(name: str) -> None:
    """Catches a lossy rule that a name alone switches on, and a flag demanded for an exact one."""
    if rule_named(name, lossy=True).exact:
        assert rule_named(name).exact
    else:
        with pytest.raises(ForerunError, match="add --lossy"):
            rule_named(name)


def test_neighbours_of_an_unknown_name() -> None:
    """A typing error is answered with what was meant."""
    with pytest.raises(ForerunError, match="did you mean agreement"):
        rule_named("agreemnt")
