"""A feature ladder as tables for a terminal: how well each level predicts, and how fast it decodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

_PREDICTED = (
    "predictor", "AUC (95 %)", "AUC over F0", "AUC, first draft", "ECE", "Brier", "hazard error", "soft error", "µs",
)  # fmt: skip
_ENDS = ("estimate", "low", "high")
_DECIDED = ("policy", "tokens/s", "share of {}", "regret a round", "over the best without features")


def ladder_tables(scenes: Sequence[Mapping[str, Any]]) -> list[Table]:
    """Two tables for each world and regime: predictors rung by rung, then controllers and oracles fastest first."""
    tables = []
    for scene in scenes:
        place = f"{scene['world']}, {scene['regime']}"
        rounds = scene["predictors"][0]["rounds"]
        tables.append(_table(f"{place}: predictions of {rounds} rounds", _PREDICTED))
        for score in scene["predictors"]:
            tables[-1].add_row(*_predicted(score))
        texts = f"{scene['answers_per_seed']} answers, {scene['tokens_per_seed']} tokens, {len(scene['seeds'])} seeds"
        tables.append(_table(f"{place}: {texts}", [heading.format(scene["share_of"]) for heading in _DECIDED]))
        for entry in scene["entries"]:
            tables[-1].add_row(*_decided(entry), style="italic dim" if entry["oracle"] else "")
    return tables


def _table(title: str, headings: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left")
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="right" if index else "left", no_wrap=True)
    return table


def _predicted(score: Mapping[str, Any]) -> tuple[str, ...]:
    hazard_error, taken = score["hazard_error"], score["microseconds"]
    return (
        score["predictor"],
        _interval(score["auc"]),
        _interval(score["auc_gain"], "+"),
        _interval(score["auc_first"]),
        f"{score['ece']['estimate']:.3f}",
        f"{score['brier']['estimate']:.3f}",
        "" if hazard_error is None else f"{hazard_error['estimate']:.3f}",
        f"{score['soft_error']['estimate']:.3f}",
        "" if taken is None else f"{taken['median']:.0f}",
    )


def _decided(entry: Mapping[str, Any]) -> tuple[str, ...]:
    share, regret, ratio = entry["share"], entry["mean_regret"], entry.get("ratio_to_best_without_features")
    return (
        entry["policy"],
        f"{entry['tokens_per_second']['estimate']:.2f}",
        "" if share is None else _interval(share),
        "" if regret is None else f"{regret:.3f}",
        "" if ratio is None else _interval(ratio),
    )


def _interval(value: Mapping[str, float | None], sign: str = "") -> str:
    """Without brackets where one answer leaves no interval."""
    estimate, low, high = (f"{value[key]:{sign}.3f}" if value[key] is not None else "" for key in _ENDS)
    return f"{estimate} ({low}–{high})" if low else estimate
