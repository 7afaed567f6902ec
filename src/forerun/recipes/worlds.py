"""Names of simulated worlds and cost regimes."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TypeVar

from forerun.errors import ForerunError
from forerun.evaluation.replay import CostRegime
from forerun.evaluation.simulator import (
    AutoregressiveDifficulty,
    BinaryWorld,
    Curve,
    DriftingDifficulty,
    HazardWorld,
    IndependentDifficulty,
    LargeBatch,
    LongContext,
    NoCache,
    Recurrent,
    SwitchingDifficulty,
    WidthTable,
    World,
)

_Value = TypeVar("_Value")

WORLDS: dict[str, World] = {
    "independent": HazardWorld(difficulty=IndependentDifficulty()),
    "ar1": HazardWorld(difficulty=AutoregressiveDifficulty()),
    "drifting": HazardWorld(difficulty=DriftingDifficulty()),
    "switching": HazardWorld(difficulty=SwitchingDifficulty()),
    "binary": BinaryWorld(),
}

REGIMES: dict[str, CostRegime] = {
    "no-cache": NoCache(),
    "autoregressive": Curve(label="autoregressive", draft_per_token=0.003),
    "parallel": Curve(label="parallel", draft_fixed=0.003, draft_per_token=0.0003),
    "large-batch": LargeBatch(),
    "long-context": LongContext(),
    "moe": WidthTable(),
    "recurrent": Recurrent(),
}
"""``autoregressive`` and ``parallel`` are batch 1 with a cache; see the classes for the others."""

DEFAULT_SCENES: tuple[tuple[str, str], ...] = (
    ("independent", "autoregressive"),
    ("independent", "moe"),
    *(("ar1", regime) for regime in REGIMES),
    ("binary", "autoregressive"),
    ("drifting", "autoregressive"),
    ("drifting", "moe"),
    ("switching", "autoregressive"),
    ("switching", "moe"),
)
"""World and regime of each part of the whole comparison."""

LADDER_SCENES: tuple[tuple[str, str], ...] = (
    ("independent", "autoregressive"),
    ("ar1", "autoregressive"),
    ("ar1", "large-batch"),
    ("drifting", "moe"),
)
"""Where feature levels are compared: without memory, with memory at batch 1 and in batches, and drifting."""


def world_named(name: str) -> World:
    """The world of that name.

    Raises:
        ForerunError: unknown name (its neighbours are listed).
    """
    return _named(WORLDS, name, "world")


def regime_named(name: str) -> CostRegime:
    """The cost regime of that name.

    Raises:
        ForerunError: unknown name (its neighbours are listed).
    """
    return _named(REGIMES, name, "cost regime")


def _named(table: Mapping[str, _Value], name: str, what: str) -> _Value:
    if name not in table:
        near = difflib.get_close_matches(name, table) or list(table)
        raise ForerunError(f"unknown {what} {name!r}; did you mean {', '.join(near)}?")
    return table[name]
