"""Worlds with known survivals and regimes with known costs: what a controller can reach is then known too."""

from forerun.evaluation.simulator.difficulty import (
    AutoregressiveDifficulty,
    Difficulty,
    DriftingDifficulty,
    IndependentDifficulty,
    SwitchingDifficulty,
)
from forerun.evaluation.simulator.regimes import (
    Curve,
    LargeBatch,
    LongContext,
    MeasuredCached,
    MeasuredUncached,
    NoCache,
    Recurrent,
    WidthTable,
)
from forerun.evaluation.simulator.world import BinaryWorld, HazardWorld, World

__all__ = [
    "AutoregressiveDifficulty",
    "BinaryWorld",
    "Curve",
    "Difficulty",
    "DriftingDifficulty",
    "HazardWorld",
    "IndependentDifficulty",
    "LargeBatch",
    "LongContext",
    "MeasuredCached",
    "MeasuredUncached",
    "NoCache",
    "Recurrent",
    "SwitchingDifficulty",
    "WidthTable",
    "World",
]
