"""Horizon policies that do what a test tells them, and remember what they were told."""

from collections.abc import Sequence
from typing import final

from forerun.horizons import Choice, HorizonPolicy, RoundContext, RoundFeedback


@final
class Forced(HorizonPolicy):
    """Goes through a list of horizons, again and again, and keeps every feedback."""

    def __init__(self, horizons: Sequence[int]) -> None:
        """Starts at the first."""
        self.horizons = tuple(horizons)
        self.feedback: list[RoundFeedback] = []
        self.contexts: list[RoundContext] = []

    name = "forced"

    def propose(self, context: RoundContext, *, uniform: float) -> Choice:
        """The next one, as far as the limit allows."""
        horizon = min(self.horizons[len(self.contexts) % len(self.horizons)], context.limit)
        self.contexts.append(context)
        drafted = (1.0,) * horizon + (0.0,) * (context.limit - horizon)
        return Choice(horizon=horizon, planned=horizon, explored=False, propensities=drafted)

    def observe(self, feedback: RoundFeedback) -> None:
        """Remembers."""
        self.feedback.append(feedback)

    def clone(self) -> "Forced":
        """From the start again."""
        return Forced(self.horizons)
