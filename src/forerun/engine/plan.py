"""A round of one request between drafting and verification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from forerun.engine.draft import Draft
from forerun.horizons import Choice, DrawnToken, RoundContext
from forerun.models import Block


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What was chosen and drafted, and what the target is to read.

    Attributes:
        context: what was known before the horizon was chosen.
        choice: of the horizon policy.
        draft: of the drafter.
        drawn: what the choice's stop rule saw of it.
        block: what the target reads: the last committed token, the draft, riders.
        riders: how many stand behind each token that is verified; none where the drafter has no use for them.
        controller_seconds: that the choice took.
        draft_marks: marks of the target's clock, before drafting and after.
    """

    context: RoundContext
    choice: Choice
    draft: Draft
    drawn: tuple[DrawnToken, ...]
    block: Block
    riders: tuple[int, ...]
    controller_seconds: float
    draft_marks: tuple[Any, Any]
