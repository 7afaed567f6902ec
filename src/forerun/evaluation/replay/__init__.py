"""Any horizon policy on a fixed text: what would every round have brought and cost? Needs no model."""

from forerun.evaluation.replay.cost_regime import CostRegime
from forerun.evaluation.replay.oracles import (
    OracleRun,
    best_fixed,
    clairvoyant,
    clairvoyant_per_round,
    per_context,
    per_context_horizons,
    per_context_renewal,
    per_signal,
    rates,
    renewal_horizons,
)
from forerun.evaluation.replay.priced import Priced
from forerun.evaluation.replay.run import Replayed, replay
from forerun.evaluation.replay.track import Track

__all__ = [
    "CostRegime",
    "OracleRun",
    "Priced",
    "Replayed",
    "Track",
    "best_fixed",
    "clairvoyant",
    "clairvoyant_per_round",
    "per_context",
    "per_context_horizons",
    "per_context_renewal",
    "per_signal",
    "rates",
    "renewal_horizons",
    "replay",
]
