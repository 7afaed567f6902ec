"""Names of training objectives."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from forerun.errors import ForerunError
from forerun.training import TVP, CrossEntropy, ForwardKL, Objective, TotalVariation

OBJECTIVES: dict[str, Callable[[], Objective]] = {
    "tvp": TVP,
    "tvp-from-quarter": lambda: TVP(beta=0.25),
    "tvp-from-half": lambda: TVP(beta=0.5),
    "tvp-fixed-half": lambda: TVP(schedule="fixed", beta=0.5),
    "tvp-reversed": lambda: TVP(schedule="reversed"),
    "tv": TotalVariation,
    "kl": ForwardKL,
    "ce": CrossEntropy,
}


def objective(name: str) -> Objective:
    """The objective of that name.

    Raises:
        ForerunError: unknown name; its neighbours are listed.
    """
    if name not in OBJECTIVES:
        near = difflib.get_close_matches(name, OBJECTIVES) or list(OBJECTIVES)
        raise ForerunError(f"unknown loss {name!r}; did you mean {', '.join(near)}?")
    return OBJECTIVES[name]()
