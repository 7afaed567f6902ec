"""The rungs of the feature ladder, and what they have to be better than."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from forerun.horizons import AMTP, CostModel, FeatureLevel, HorizonPolicy
from forerun.recipes.horizons import HORIZONS


def _rung(costs: CostModel | None, level: FeatureLevel) -> HorizonPolicy:
    return AMTP(costs=costs, features=level)


def _predictor(costs: CostModel | None, level: FeatureLevel) -> HorizonPolicy:
    return AMTP(costs=costs, features=level, warmup_rounds=0)


RUNGS: dict[str, Callable[[CostModel | None], HorizonPolicy]] = {
    level.value: partial(_rung, level=level) for level in FeatureLevel if level is not FeatureLevel.F4
}
"""AMTP at each level that is known before drafting, otherwise with its defaults."""

WITHOUT_FEATURES: dict[str, Callable[[CostModel | None], HorizonPolicy]] = {
    name: maker for name, maker in HORIZONS.items() if name.startswith("windowed-survival")
}
"""Survivals and costs from past acceptance alone, in every setting: what decides whether features matter."""

PREDICTORS: dict[str, Callable[[CostModel | None], HorizonPolicy]] = {
    **{level.value: partial(_predictor, level=level) for level in FeatureLevel},
    **{name: HORIZONS[name] for name in ("windowed-survival", "windowed-survival-ewma")},
}
"""What is scored on the same rounds, from the first one on. F4 is a reference: it sees the draft laws."""
