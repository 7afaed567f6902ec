"""The same horizon in every round: the baseline, and with horizon 0 plain decoding."""

from __future__ import annotations

from typing import final

from forerun.errors import ForerunError
from forerun.horizons.context import Choice, RoundContext, RoundFeedback
from forerun.horizons.policy import HorizonPolicy
from forerun.horizons.signals import Signal


@final
class FixedHorizon(HorizonPolicy):
    """Drafts `horizon` tokens in every round, fewer only where the round's limit is smaller.

    Args:
        horizon: tokens to draft; 0 is plain decoding.

    Raises:
        ForerunError: the horizon is negative.
    """

    def __init__(self, horizon: int) -> None:
        if horizon < 0:
            raise ForerunError(f"horizon {horizon} is negative: give 0 (plain decoding) or more tokens to draft")
        self.horizon = horizon

    @property
    def name(self) -> str:
        """`fixed-K`."""
        return f"fixed-{self.horizon}"

    @property
    def wants(self) -> frozenset[Signal]:
        """Nothing."""
        return frozenset()

    def propose(self, context: RoundContext, *, uniform: float) -> Choice:
        """min(horizon, limit); the coin is checked and ignored."""
        if not 0.0 <= uniform < 1.0:
            raise ForerunError(f"uniform is {uniform}: give one draw from [0, 1)")
        horizon = min(self.horizon, context.limit)
        return Choice(
            horizon=horizon,
            planned=horizon,
            explored=False,
            propensities=(1.0,) * horizon + (0.0,) * (context.limit - horizon),
        )

    def observe(self, feedback: RoundFeedback) -> None:
        """Nothing to learn."""

    def clone(self) -> FixedHorizon:
        """The same fixed horizon."""
        return FixedHorizon(self.horizon)
