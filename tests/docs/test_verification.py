"""The table of verification rules says what the code says."""

import re
from pathlib import Path

from forerun.recipes import RULES, rule_named

PAGE = (Path(__file__).parents[2] / "docs" / "verification.md").read_text(encoding="utf-8")
COLUMNS = ["rule", "exact", "safe truncation", "needs the draft law", "cost beside the target's pass"]


def chain_table() -> dict[str, list[str]]:
    """Rows of the chapter on chains by rule name, without that column."""
    chapter = PAGE.split("\n## Drafts that are chains\n")[1].split("\n## ")[0]
    lines = [line for line in chapter.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[0] == COLUMNS
    return {name: rest for name, *rest in cells[2:]}


def test_the_table_agrees_with_the_rules() -> None:
    """Catches a rule left out of the guide, and a property changed in one place only."""
    properties = {}
    for name in RULES:
        rule = rule_named(name, lossy=True)
        properties[name] = [
            "yes" if rule.exact else "no",
            rule.truncation.value,
            "yes" if rule.needs_draft_law else "no",
        ]
    assert {name: row[:3] for name, row in chain_table().items()} == properties
    assert all(row[3] for row in chain_table().values())


def test_every_rule_is_explained() -> None:
    """A row of the table without a sentence in plain words would help nobody."""
    explained = re.findall(r"^- \*\*([a-z-]+)\*\*", PAGE, re.MULTILINE)
    assert [name for name in explained if name in RULES] == list(RULES)
