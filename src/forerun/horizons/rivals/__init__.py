"""Other ways of choosing a horizon, with the same two verbs as AMTP, so that they can be measured against it.

Each is a re-implementation from public descriptions; a name ends in "style" where the original formula is not public or
was not recovered. Defaults and sources stand at the classes.
"""

from forerun.horizons.rivals.adaedl import AdaEDL
from forerun.horizons.rivals.calibrated_scheduler import CalibratedScheduler, Search
from forerun.horizons.rivals.cascade import Cascade
from forerun.horizons.rivals.censored_ema import CensoredEMA
from forerun.horizons.rivals.dynamic_confidence import DynamicConfidence
from forerun.horizons.rivals.ema_tiers import EMATiers
from forerun.horizons.rivals.entropy_switch import EntropySwitch
from forerun.horizons.rivals.exp3 import EXP3
from forerun.horizons.rivals.heuristic import HeuristicSchedule
from forerun.horizons.rivals.lin_ucb import LinUCB
from forerun.horizons.rivals.specdec import AcceptanceHead, SpecDec
from forerun.horizons.rivals.staircase import Staircase
from forerun.horizons.rivals.stopping import StoppingPolicy, dropping, kangaroo, llama_cpp, svip
from forerun.horizons.rivals.table_bandit import TableBandit
from forerun.horizons.rivals.tapout import TapOut
from forerun.horizons.rivals.ucb import UpperConfidence, bandit_spec
from forerun.horizons.rivals.windowed_survival import WindowedSurvival

__all__ = [
    "EXP3",
    "AcceptanceHead",
    "AdaEDL",
    "CalibratedScheduler",
    "Cascade",
    "CensoredEMA",
    "DynamicConfidence",
    "EMATiers",
    "EntropySwitch",
    "HeuristicSchedule",
    "LinUCB",
    "Search",
    "SpecDec",
    "Staircase",
    "StoppingPolicy",
    "TableBandit",
    "TapOut",
    "UpperConfidence",
    "WindowedSurvival",
    "bandit_spec",
    "dropping",
    "kangaroo",
    "llama_cpp",
    "svip",
]
