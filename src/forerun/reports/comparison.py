"""A comparison of controllers as tables for a terminal or a README."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

_HEADINGS = ("policy", "tokens/s (95 %)", "share of {}", "after 5,000 rounds", "mean k", "Brier", "ECE", "recovery")


def comparison_tables(scenes: Sequence[Mapping[str, Any]]) -> list[Table]:
    """One table for each world and regime, fastest first; oracles in italics."""
    tables = []
    for scene in scenes:
        table = Table(title=_title(scene), title_justify="left")
        for index, heading in enumerate(_HEADINGS):
            table.add_column(heading.format(scene["share_of"]), justify="right" if index else "left", no_wrap=True)
        for entry in scene["entries"]:
            table.add_row(*_cells(entry), style="italic dim" if entry["oracle"] else "")
        tables.append(table)
    return tables


def comparison_markdown(scenes: Sequence[Mapping[str, Any]]) -> str:
    """The same tables in Markdown."""
    lines = []
    for scene in scenes:
        headings = [heading.format(scene["share_of"]) for heading in _HEADINGS]
        lines += [f"**{_title(scene)}**", "", "| " + " | ".join(headings) + " |", "|---" + "|---:" * 7 + "|"]
        for entry in scene["entries"]:
            name, *rest = _cells(entry)
            lines.append("| " + " | ".join([f"*{name}*" if entry["oracle"] else name, *rest]) + " |")
        lines.append("")
    return "\n".join(lines)


def _title(scene: Mapping[str, Any]) -> str:
    return (
        f"{scene['world']}, {scene['regime']}: {len(scene['seeds'])} seeds, {scene['answers_per_seed']} answers and "
        f"{scene['tokens_per_seed']} tokens each"
    )


def _cells(entry: Mapping[str, Any]) -> tuple[str, ...]:
    speed, recovery = entry["tokens_per_second"], entry["recovery_rounds"]
    return (
        entry["policy"],
        f"{speed['estimate']:.2f} ({speed['low']:.2f}–{speed['high']:.2f})",
        _ratio(entry["share"]),
        _ratio(entry["share_after_5000_rounds"]),
        _figure(entry["mean_horizon"], 2),
        _figure(entry["brier"], 3),
        _figure(entry["ece"], 3),
        "" if recovery is None else f"{recovery['median']:g}",
    )


def _ratio(ratio: Mapping[str, float] | None) -> str:
    return "" if ratio is None else f"{ratio['estimate']:.3f} ({ratio['low']:.3f}–{ratio['high']:.3f})"


def _figure(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
