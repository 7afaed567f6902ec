"""How the children of a tree's node came about: it decides which acceptance tests are exact."""

from enum import Enum


class Candidates(Enum):
    """Where sibling tokens come from."""

    DETERMINISTIC = "deterministic"
    """Chosen without randomness, the most probable ones say; siblings differ, and there is no draft law."""
    WITH_REPLACEMENT = "with replacement"
    """Independent draws from one law; a token may come twice."""
    WITHOUT_REPLACEMENT = "without replacement"
    """Draws from one law, each from what its elder siblings have left of it; siblings differ."""
