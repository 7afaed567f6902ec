"""The table of horizon policies says what the code says."""

from pathlib import Path

from forerun.horizons import HorizonPolicy
from forerun.horizons.rivals.stop_rules import NeverStop
from forerun.recipes import HORIZONS
from tests.support.rounds import TABLE, World, play

PAGE = (Path(__file__).parents[2] / "docs" / "rivals.md").read_text(encoding="utf-8")
COLUMNS = ["name", "timing", "exact", "defaults", "source"]


def rows() -> dict[str, list[str]]:
    """Of the page's only table, by name."""
    lines = [line for line in PAGE.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[0] == COLUMNS
    return {name: rest for name, *rest in cells[2:]}


def timing(policy: HorizonPolicy) -> str:
    """By what its choices carry once it is past a warm-up of 300 rounds."""
    told = play(policy, 310, seed=1, world=World(limit=lambda _: 3, ends=0.0))
    stops = {each.choice.stop for each in told[-10:]}
    if not policy.exact:
        return "POST"
    return "PRE" if stops <= {None, NeverStop()} else "STEP"


def test_the_table_agrees_with_the_policies() -> None:
    """Catches a policy left out of the guide, a property changed in one place only, and a cell left empty."""
    found = {name: (timing(policy), "yes" if policy.exact else "no") for name, policy in
             ((name, maker(TABLE)) for name, maker in HORIZONS.items())}  # fmt: skip
    assert {name: (row[0], row[1]) for name, row in rows().items()} == found
    assert list(rows()) == list(HORIZONS)
    assert all(row[2] and row[3] for row in rows().values())
