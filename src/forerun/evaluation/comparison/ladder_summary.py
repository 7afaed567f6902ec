"""From a climbed ladder to its table: predictions on shared rounds, speeds on own rounds, and whether features pay."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from forerun.evaluation.comparison.ladder import LadderScene
from forerun.evaluation.comparison.predictions import joined
from forerun.evaluation.comparison.rows import ComparisonRow
from forerun.evaluation.comparison.scores import prediction_scores
from forerun.evaluation.comparison.summary import summarise, throughput_ratio


def ladder_summary(
    climbed: Sequence[tuple[str, str, LadderScene]], rows: Sequence[ComparisonRow], *, without_features: Sequence[str]
) -> list[dict[str, Any]]:
    """One entry for each world and regime.

    Args:
        climbed: world, regime and what its predictors said, once for each set of texts.
        rows: of controllers and oracles in the same scenes.
        without_features: names of the controllers that the others are measured against: the fastest of them in each
            scene, chosen in hindsight, which favours it.
    """
    parts: defaultdict[tuple[str, str], list[LadderScene]] = defaultdict(list)
    for world, regime, part in climbed:
        parts[world, regime].append(part)
    found = []
    for scene in summarise(rows):
        own = [row for row in rows if (row.world, row.regime) == (scene["world"], scene["regime"])]
        plain = max(
            (entry for entry in scene["entries"] if entry["policy"] in without_features),
            key=lambda entry: entry["tokens_per_second"]["estimate"],
        )["policy"]
        for entry in scene["entries"]:
            if not entry["oracle"]:
                entry["ratio_to_best_without_features"] = throughput_ratio(
                    [row for row in own if row.policy == entry["policy"]],
                    [row for row in own if row.policy == plain],
                )
        seeds = parts[scene["world"], scene["regime"]]
        scores = prediction_scores(
            {name: joined([seed.predicted[name] for seed in seeds]) for name in seeds[0].predicted}, seed=0
        )
        found.append(
            {
                **scene,
                "best_without_features": plain,
                "predictors": [
                    {
                        "predictor": name,
                        **asdict(score),
                        "microseconds": asdict(seeds[0].microseconds[name]) if name in seeds[0].microseconds else None,
                    }
                    for name, score in scores.items()
                ],
            }
        )
    return found
