"""Controllers and oracles on the same texts: flat rows, then one summary with intervals."""

from forerun.evaluation.comparison.calibration import Calibration, calibration
from forerun.evaluation.comparison.regret import recovery_rounds, throughput_regret
from forerun.evaluation.comparison.rows import ComparisonRow, Scene, oracle_rows, policy_row
from forerun.evaluation.comparison.study import (
    PolicyFactory,
    compare,
    recorded_scenes,
    simulated_scenes,
    starting_table,
)
from forerun.evaluation.comparison.summary import summarise

__all__ = [
    "Calibration",
    "ComparisonRow",
    "PolicyFactory",
    "Scene",
    "calibration",
    "compare",
    "oracle_rows",
    "policy_row",
    "recorded_scenes",
    "recovery_rounds",
    "simulated_scenes",
    "starting_table",
    "summarise",
    "throughput_regret",
]
