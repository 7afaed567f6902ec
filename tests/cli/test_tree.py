"""Trees from the command line: the text stays the same, the shape is the one that was asked for."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import forerun

PROMPT = "the cat sat"
GREEDY = ("--temperature", "0", "--max-new-tokens", "20")


def answer(target_folder: Path, *options: str) -> dict[str, Any]:
    finished = forerun("generate", PROMPT, "--target", target_folder, "--json", *options)
    assert finished.code == 0, finished.err
    line: dict[str, Any] = json.loads(finished.out)
    return line


@pytest.fixture(scope="module")
def plain(target_folder: Path) -> list[int]:
    """What the target writes alone."""
    token_ids: list[int] = answer(target_folder, "--drafter", "none", *GREEDY)["token_ids"]
    return token_ids


CASES: dict[str, tuple[str, list[str], int]] = {
    "model, by depth": ("model", ["--tree", "3x2", "--horizon", "2"], 9),
    "model, distinct, target-only": (
        "model", ["--tree", "2x2x1", "--horizon", "3", "--tree-candidates", "distinct", "--rule", "target-only"], 3,
    ),
    "eagle, dynamic": ("eagle", ["--tree", "dynamic", "--horizon", "4"], 59),
    "eagle, sizes": ("eagle", ["--tree", "3x4:9", "--horizon", "3", "--rule", "agreement"], 9),
}  # fmt: skip
"""Drafter, options, and nodes of a whole tree. From a greedy law only one distinct sibling can be drawn."""
SLOW = ("model, distinct, target-only", "eagle, sizes")


@pytest.mark.parametrize(
    ("drafter", "options", "nodes"),
    [pytest.param(*case, id=name, marks=pytest.mark.slow if name in SLOW else ()) for name, case in CASES.items()],
)
def test_greedy_text_is_plain_decodings(
    made: Path, target_folder: Path, plain: list[int], drafter: str, options: list[str], nodes: int
) -> None:
    """Exactness from the outside; catches a shape or a rule that does not reach the drafter."""
    word = f"model:{made / 'small'}" if drafter == "model" else str(made / drafter)
    found = answer(target_folder, "--drafter", word, *GREEDY, *options)
    assert found["token_ids"] == plain
    assert found["exact"] and nodes * (found["rounds"] - 5) <= found["drafted"] <= nodes * found["rounds"]


@pytest.mark.parametrize("drafter", [pytest.param("model", marks=pytest.mark.slow), "eagle"])
def test_a_budget_lets_the_policy_choose_shapes(
    made: Path, target_folder: Path, plain: list[int], drafter: str
) -> None:
    """It begins by measuring nothing, a chain and a doubled chain of the full depth: 4 + 4 + 8 nodes."""
    word = f"model:{made / 'small'}" if drafter == "model" else str(made / drafter)
    budget = "8" if drafter == "eagle" else "4"
    found = answer(target_folder, "--drafter", word, *GREEDY, "--tree", budget)
    assert found["token_ids"] == plain
    assert found["rounds_without_drafts"] > 0 and found["drafted"] <= int(budget) * found["rounds"]


@pytest.mark.parametrize(
    ("drafter", "options", "complaint"),
    [
        ("none", ["--tree", "oak"], "--tree is 'oak'; give a number of nodes .*4x2x1.*dynamic"),
        ("none", ["--tree", "4x2", "--rule", "block"], "rule block tests no trees; choose one of token-level"),
        ("none", ["--tree", "24", "--horizon", "3"], "--tree 24 lets amtp choose shapes .* with --horizon 3 give"),
        ("none", ["--tree", "0"], "max_nodes is 0"),
        ("none", ["--tree-candidates", "distinct"], "--tree-candidates are the siblings of a tree; add --tree"),
        ("none", ["--tree", "4x2"], r"--tree needs an EAGLE-3 drafter or model:NAME; none drafts no trees"),
        ("prompt-lookup", ["--tree", "8"], "prompt-lookup drafts no trees"),
        ("drafter", ["--tree", "dynamic"], "dspark drafts no trees"),
        ("eagle", ["--tree", "4x2"], "children by depth are for a draft model; for EAGLE-3 give dynamic"),
        ("eagle", ["--tree", "9x2:12"], "depth is 9; for this drafter give 1 to 4"),
        ("model", ["--tree", "dynamic"], "dynamic trees are EAGLE-3's; for a draft model give children by depth"),
        ("model", ["--tree", "3x0"], r"branching is \(3, 0\); give the number of children"),
        ("model", ["--tree", "3x2", "--horizon", "svip"], "svip ends chains .* drafts trees; take another"),
        ("model", ["--tree", "3x2", "--tree-candidates", "best"], "--tree-candidates is 'best'; choose one of top-k"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_one_line(
    made: Path, target_folder: Path, drafter: str, options: list[str], complaint: str
) -> None:
    word = {"model": f"model:{made / 'small'}", "drafter": str(made / "drafter"), "eagle": str(made / "eagle")}
    finished = forerun("generate", PROMPT, "--target", target_folder, "--drafter", word.get(drafter, drafter), *options)
    assert (finished.code, finished.out) == (2, "")
    assert re.fullmatch(r"forerun: [^\n]+\n", finished.err) and re.search(complaint, finished.err), finished.err
