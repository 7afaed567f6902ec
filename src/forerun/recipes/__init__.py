"""Complete configurations by name; the only place where a name stands for an object."""

from forerun.recipes.demo import demo_config, demo_prompts
from forerun.recipes.drafter import dflash2_for, dflash_for, dspark_for, embedded_drafter, medusa_for
from forerun.recipes.drafters import DRAFTERS, drafter_config
from forerun.recipes.eagle3 import eagle3_deepspec_for, eagle3_for
from forerun.recipes.feature_ladder import PREDICTORS, RUNGS, WITHOUT_FEATURES
from forerun.recipes.horizons import ADAPTIVE, HORIZONS, horizon_named
from forerun.recipes.objectives import OBJECTIVES, objective
from forerun.recipes.parallel_heads import parallel_heads_for
from forerun.recipes.prompts import prompts_from_file, shipped_prompts
from forerun.recipes.rules import RULES, TREE_RULES, rule_named, tree_rule_named
from forerun.recipes.worlds import DEFAULT_SCENES, LADDER_SCENES, REGIMES, WORLDS, regime_named, world_named

__all__ = [
    "ADAPTIVE",
    "DEFAULT_SCENES",
    "DRAFTERS",
    "HORIZONS",
    "LADDER_SCENES",
    "OBJECTIVES",
    "PREDICTORS",
    "REGIMES",
    "RULES",
    "RUNGS",
    "TREE_RULES",
    "WITHOUT_FEATURES",
    "WORLDS",
    "demo_config",
    "demo_prompts",
    "dflash2_for",
    "dflash_for",
    "drafter_config",
    "dspark_for",
    "eagle3_deepspec_for",
    "eagle3_for",
    "embedded_drafter",
    "horizon_named",
    "medusa_for",
    "objective",
    "parallel_heads_for",
    "prompts_from_file",
    "regime_named",
    "rule_named",
    "shipped_prompts",
    "tree_rule_named",
    "world_named",
]
