"""Names of acceptance rules."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from forerun.errors import ForerunError
from forerun.verification import (
    Agreement,
    BlockVerification,
    Greedy,
    Lenient,
    Rule,
    TargetOnly,
    TokenLevel,
    TreeAgreement,
    TreeRule,
    TreeTokenLevel,
    TypicalAcceptance,
)

RULES: dict[str, Callable[[], Rule]] = {
    "token-level": TokenLevel,
    "block": BlockVerification,
    "agreement": Agreement,
    "greedy": Greedy,
    "typical": TypicalAcceptance,
    "lenient": lambda: Lenient(0.5),
}

TREE_RULES: dict[str, Callable[[], TreeRule]] = {
    "token-level": TreeTokenLevel,
    "target-only": TargetOnly,
    "agreement": TreeAgreement,
}
"""For trees; the same words where it is the same test."""


def rule_named(name: str, *, lossy: bool = False) -> Rule:
    """The acceptance rule of that name.

    Args:
        name: one of ``RULES``.
        lossy: whether a rule that changes the output law is wanted too.

    Raises:
        ForerunError: unknown name (its neighbours are listed), or a lossy rule that was not asked for as such.
    """
    if name not in RULES:
        near = difflib.get_close_matches(name, RULES) or list(RULES)
        raise ForerunError(f"unknown rule {name!r}; did you mean {', '.join(near)}?")
    rule = RULES[name]()
    if not rule.exact and not lossy:
        raise ForerunError(f"rule {name} changes what the target would write; add --lossy if you want that")
    return rule


def tree_rule_named(name: str) -> TreeRule:
    """The acceptance rule for trees of that name; all of them are exact.

    Raises:
        ForerunError: another name.
    """
    if name not in TREE_RULES:
        raise ForerunError(f"rule {name} tests no trees; choose one of {', '.join(TREE_RULES)}")
    return TREE_RULES[name]()
