"""Controllers and oracles on the same texts: flat rows, then one summary with intervals."""

from forerun.evaluation.comparison.calibration import Calibration, calibration
from forerun.evaluation.comparison.ladder import LadderScene, RoundTime, WholeWindow, climb, with_draft_margins
from forerun.evaluation.comparison.ladder_summary import ladder_summary
from forerun.evaluation.comparison.predictions import Predictions, joined, predictions
from forerun.evaluation.comparison.regret import recovery_rounds, throughput_regret
from forerun.evaluation.comparison.rows import ComparisonRow, Scene, oracle_rows, policy_row
from forerun.evaluation.comparison.scores import Estimate, PredictionScores, auc, prediction_scores
from forerun.evaluation.comparison.study import (
    PolicyFactory,
    compare,
    recorded_scenes,
    simulated_scenes,
    starting_table,
)
from forerun.evaluation.comparison.summary import summarise, throughput_ratio

__all__ = [
    "Calibration",
    "ComparisonRow",
    "Estimate",
    "LadderScene",
    "PolicyFactory",
    "PredictionScores",
    "Predictions",
    "RoundTime",
    "Scene",
    "WholeWindow",
    "auc",
    "calibration",
    "climb",
    "compare",
    "joined",
    "ladder_summary",
    "oracle_rows",
    "policy_row",
    "prediction_scores",
    "predictions",
    "recorded_scenes",
    "recovery_rounds",
    "simulated_scenes",
    "starting_table",
    "summarise",
    "throughput_ratio",
    "throughput_regret",
    "with_draft_margins",
]
