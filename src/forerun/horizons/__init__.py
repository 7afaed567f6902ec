"""How many tokens to draft next: policies, what they are told, and what rounds cost.

Plain Python, no torch: a serving engine's scheduler can import it.
"""

from forerun.horizons.amtp import AMTP, AMTPReport
from forerun.horizons.context import Choice, RoundContext, RoundFeedback
from forerun.horizons.cost import CostTable
from forerun.horizons.features import FEATURE_NAMES, FeatureLevel
from forerun.horizons.fixed import FixedHorizon
from forerun.horizons.policy import HorizonPolicy
from forerun.horizons.signals import Signal, TokenClass
from forerun.horizons.stop import DraftStatistics, DrawnToken, StopRule
from forerun.horizons.survival import Plan, best_horizon, gains, survivals

__all__ = [
    "AMTP",
    "FEATURE_NAMES",
    "AMTPReport",
    "Choice",
    "CostTable",
    "DraftStatistics",
    "DrawnToken",
    "FeatureLevel",
    "FixedHorizon",
    "HorizonPolicy",
    "Plan",
    "RoundContext",
    "RoundFeedback",
    "Signal",
    "StopRule",
    "TokenClass",
    "best_horizon",
    "gains",
    "survivals",
]
