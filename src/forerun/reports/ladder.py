"""A feature ladder as tables for a terminal or a guide: predictions and speeds side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

_HEADINGS = (
    "predictor", "AUC", "AUC over F0", "AUC, first draft", "ECE", "Brier", "hazard error", "soft error", "µs a round",
    "tokens/s", "share of {}", "regret a round", "over the best without features",
)  # fmt: skip


def ladder_tables(scenes: Sequence[Mapping[str, Any]]) -> list[Table]:
    """One table for each world and regime, rung by rung."""
    tables = []
    for scene in scenes:
        table = Table(title=_title(scene), title_justify="left")
        for index, heading in enumerate(_headings(scene)):
            table.add_column(heading, justify="right" if index else "left")
        for cells in _rows(scene):
            table.add_row(*cells)
        tables.append(table)
    return tables


def ladder_markdown(scenes: Sequence[Mapping[str, Any]]) -> str:
    """The same tables in Markdown."""
    lines = []
    for scene in scenes:
        headings = _headings(scene)
        lines += [f"**{_title(scene)}**", "", "| " + " | ".join(headings) + " |"]
        lines += ["|---" + "|---:" * (len(headings) - 1) + "|"]
        lines += ["| " + " | ".join(cells) + " |" for cells in _rows(scene)]
        lines.append("")
    return "\n".join(lines)


def _title(scene: Mapping[str, Any]) -> str:
    rounds = scene["predictors"][0]["rounds"]
    return (
        f"{scene['world']}, {scene['regime']}: {len(scene['seeds'])} seeds, {scene['answers_per_seed']} answers and "
        f"{scene['tokens_per_seed']} tokens each; predictions of {rounds} rounds"
    )


def _headings(scene: Mapping[str, Any]) -> list[str]:
    return [heading.format(scene["share_of"]) for heading in _HEADINGS]


def _rows(scene: Mapping[str, Any]) -> Iterator[list[str]]:
    """Predictors first, with their own rounds where they have any; then controllers that are no predictor here."""
    entries = {entry["policy"]: entry for entry in scene["entries"]}
    for score in scene["predictors"]:
        yield [score["predictor"], *_predicted(score), *_decided(entries.pop(score["predictor"], None))]
    for name, entry in entries.items():
        yield [f"{name} (oracle)" if entry["oracle"] else name, *[""] * 8, *_decided(entry)]


def _predicted(score: Mapping[str, Any]) -> list[str]:
    return [
        _interval(score["auc"]),
        f"{score['auc_gain']['estimate']:+.3f} ({_range(score['auc_gain'])})",
        _interval(score["auc_first"]),
        _interval(score["ece"]),
        _interval(score["brier"]),
        "" if score["hazard_error"] is None else _interval(score["hazard_error"]),
        _interval(score["soft_error"]),
        "" if score["microseconds"] is None else f"{score['microseconds']['median']:.0f}",
    ]


def _decided(entry: Mapping[str, Any] | None) -> list[str]:
    if entry is None:
        return [""] * 4
    regret, ratio = entry["mean_regret"], entry.get("ratio_to_best_without_features")
    return [
        f"{entry['tokens_per_second']['estimate']:.2f}",
        "" if entry["share"] is None else _interval(entry["share"]),
        "" if regret is None else f"{regret:.3f}",
        "" if ratio is None else _interval(ratio),
    ]


def _interval(value: Mapping[str, float]) -> str:
    return f"{value['estimate']:.3f} ({_range(value)})"


def _range(value: Mapping[str, float]) -> str:
    return "" if value["low"] is None else f"{value['low']:.3f}–{value['high']:.3f}"
