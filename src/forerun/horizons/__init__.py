"""How many tokens to draft next: policies, what they are told, and what rounds cost.

Plain Python, no torch: a serving engine's scheduler can import it.
"""

from forerun.horizons.amtp import AMTP
from forerun.horizons.amtp_report import AMTPReport
from forerun.horizons.batch_schedule import BatchSchedule, bucketed, ragged, uniform
from forerun.horizons.context import Choice, RoundContext, RoundFeedback
from forerun.horizons.cost import CostTable
from forerun.horizons.cost_files import read_costs
from forerun.horizons.cost_model import CostModel
from forerun.horizons.cost_surface import CostSurface, DraftTime, PassTime
from forerun.horizons.exploration import Schedule
from forerun.horizons.features import FEATURE_NAMES, HIDDEN_DIMS, FeatureLevel
from forerun.horizons.fixed import FixedHorizon
from forerun.horizons.guarded import Guarded
from forerun.horizons.hazards import Logistic
from forerun.horizons.joint import JointPolicy, Seat
from forerun.horizons.joint_amtp import Drafting, JointAMTP, Shape
from forerun.horizons.learner import Learner
from forerun.horizons.linear_hazards import Linear, theory_rates
from forerun.horizons.objective import Ablation, Objective
from forerun.horizons.policy import HorizonPolicy
from forerun.horizons.signals import Signal, TokenClass
from forerun.horizons.stop import DraftStatistics, DrawnToken, StopRule
from forerun.horizons.survival import Plan, best_horizon, gains, survivals
from forerun.horizons.survival_learner import DirectSurvival
from forerun.horizons.tree_amtp import TreeAMTP
from forerun.horizons.tree_shape import TreeShape, best_shape, best_tree, num_nodes

__all__ = [
    "AMTP",
    "FEATURE_NAMES",
    "HIDDEN_DIMS",
    "AMTPReport",
    "Ablation",
    "BatchSchedule",
    "Choice",
    "CostModel",
    "CostSurface",
    "CostTable",
    "DirectSurvival",
    "DraftStatistics",
    "DraftTime",
    "Drafting",
    "DrawnToken",
    "FeatureLevel",
    "FixedHorizon",
    "Guarded",
    "HorizonPolicy",
    "JointAMTP",
    "JointPolicy",
    "Learner",
    "Linear",
    "Logistic",
    "Objective",
    "PassTime",
    "Plan",
    "RoundContext",
    "RoundFeedback",
    "Schedule",
    "Seat",
    "Shape",
    "Signal",
    "StopRule",
    "TokenClass",
    "TreeAMTP",
    "TreeShape",
    "best_horizon",
    "best_shape",
    "best_tree",
    "bucketed",
    "gains",
    "num_nodes",
    "ragged",
    "read_costs",
    "survivals",
    "theory_rates",
    "uniform",
]
