"""What a drafter says about itself, in words that the engine, policies and reports can act on.

Each of these is a claim; the conformance suite tests the ones that a test can decide.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import final


@final
class Dependence(Enum):
    """How a draft's law depends on the drafts before it in the same block."""

    NONE = "none"
    """Every position is drawn independently; the law of the block is a product."""
    FIRST_ORDER = "first order"
    """On the draft just before it."""
    FULL = "full"
    """On all of them."""


@final
class Saving(Enum):
    """What a shorter horizon saves."""

    DRAFTING = "drafting"
    VERIFICATION = "verification"
    BOTH = "drafting and verification"


@final
class Need(Enum):
    """What the target has to supply besides the tokens themselves."""

    FEATURES = auto()
    """Outputs of captured layers, for every committed token."""
    EMBEDDING = auto()
    """Its input embedding."""
    HEAD = auto()
    """Its language-model head."""
    FINAL_NORM = auto()
    """Its final norm."""
    FORWARD = auto()
    """A pass of its own layers over tokens that the drafter chooses."""
