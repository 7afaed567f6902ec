"""Objectives by name."""

import re

import pytest

from forerun.errors import ForerunError
from forerun.recipes import OBJECTIVES, objective
from forerun.training import TVP


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_name_makes_an_objective_of_its_own(name: str) -> None:
    """Catches a name that stands for a mistake nobody has ever constructed, and two names for one thing."""
    words = objective(name).describe()
    assert words
    assert sum(objective(other).describe() == words for other in OBJECTIVES) == 1


def test_names_mean_what_they_say() -> None:
    """Catches a start or schedule under the wrong name."""
    for name, start, middle, end in (
        ("tvp", 0.0, 0.5, 1.0),
        ("tvp-from-quarter", 0.25, 0.625, 1.0),
        ("tvp-from-half", 0.5, 0.75, 1.0),
        ("tvp-fixed-half", 0.5, 0.5, 0.5),
        ("tvp-reversed", 1.0, 0.5, 0.0),
    ):
        made = objective(name)
        assert isinstance(made, TVP)
        assert [made.beta_at(step, 100) for step in (0, 40, 80)] == pytest.approx([start, middle, end]), name


@pytest.mark.parametrize(("name", "neighbour"), [("tpv", "tvp"), ("tvp-from-quater", "tvp-from-quarter"), ("TV", "tv")])
def test_an_unknown_name_lists_its_neighbours(name: str, neighbour: str) -> None:
    with pytest.raises(ForerunError, match=f"unknown loss {name!r}; did you mean .*{neighbour}"):
        objective(name)


def test_a_name_near_nothing_lists_all() -> None:
    with pytest.raises(ForerunError, match=re.escape(", ".join(OBJECTIVES))):
        objective("cosine")
