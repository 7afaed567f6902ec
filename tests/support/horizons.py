"""Horizon policies that do what a test tells them, and remember what they were told."""

from collections.abc import Sequence
from dataclasses import replace
from typing import final

from forerun.horizons import Choice, HorizonPolicy, RoundContext, RoundFeedback


@final
class Forced(HorizonPolicy):
    """Goes through a list of horizons, or branchings of trees, again and again, and keeps every feedback."""

    def __init__(self, horizons: Sequence[int | tuple[int, ...]]) -> None:
        """Starts at the first."""
        self.horizons = tuple(horizons)
        self.feedback: list[RoundFeedback] = []
        self.contexts: list[RoundContext] = []

    name = "forced"

    def propose(self, context: RoundContext, *, uniform: float) -> Choice:
        """The next one, as far as the limit allows."""
        forced = self.horizons[len(self.contexts) % len(self.horizons)]
        branching = None if isinstance(forced, int) else forced[: context.limit]
        horizon = min(forced if isinstance(forced, int) else len(forced), context.limit)
        self.contexts.append(context)
        drafted = (1.0,) * horizon + (0.0,) * (context.limit - horizon)
        return Choice(horizon=horizon, planned=horizon, explored=False, propensities=drafted, branching=branching)

    def observe(self, feedback: RoundFeedback) -> None:
        """Remembers."""
        self.feedback.append(feedback)

    def clone(self) -> "Forced":
        """From the start again."""
        return Forced(self.horizons)


@final
class Clocked(HorizonPolicy):
    """Another policy that is told made-up times, so that what it learns can be repeated."""

    def __init__(self, inner: HorizonPolicy) -> None:
        """Stores the policy."""
        self.inner = inner

    name = "clocked"

    def propose(self, context: RoundContext, *, uniform: float) -> Choice:
        """As the other says."""
        return self.inner.propose(context, uniform=uniform)

    def observe(self, feedback: RoundFeedback) -> None:
        """A round costs one second and a fifth for each draft, of which a tenth for drafting it."""
        drafting, width = 0.1 * feedback.depth, feedback.verify_width or 1
        self.inner.observe(
            replace(
                feedback,
                seconds=1.0 + 0.2 * feedback.drafted,
                draft_seconds=drafting,
                verify_seconds=0.9 + 0.02 * width,
            )
        )

    def clone(self) -> "Clocked":
        """A clone of the other."""
        return Clocked(self.inner.clone())
