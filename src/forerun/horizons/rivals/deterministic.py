"""What policies have in common that decide without a coin, and when a round says something about a horizon."""

from __future__ import annotations

from abc import abstractmethod

from forerun.errors import ForerunError
from forerun.horizons.context import Choice, RoundContext, RoundFeedback
from forerun.horizons.cost_model import CostModel
from forerun.horizons.policy import HorizonPolicy
from forerun.horizons.signals import Signal
from forerun.horizons.stop import StopRule


class DeterministicPolicy(HorizonPolicy):
    """A policy that ignores its coin: horizon and stop follow from the context and from past rounds."""

    @property
    def wants(self) -> frozenset[Signal]:
        """Nothing, unless a subclass says otherwise."""
        return frozenset()

    @abstractmethod
    def horizon_for(self, context: RoundContext) -> int:
        """Tokens to draft; the round's limit is applied afterwards."""

    def stop_for(self, context: RoundContext) -> StopRule | None:
        """What may end the draft earlier; nothing, unless a subclass says otherwise."""
        return None

    def propose(self, context: RoundContext, *, uniform: float) -> Choice:
        """The horizon, as far as the limit allows."""
        check_uniform(uniform)
        horizon = min(self.horizon_for(context), context.limit)
        return Choice(
            horizon=horizon,
            planned=horizon,
            explored=False,
            propensities=(1.0,) * horizon + (0.0,) * (context.limit - horizon),
            stop=self.stop_for(context) if horizon else None,
        )


def check_uniform(uniform: float) -> None:
    """Refuse what is no draw from [0, 1).

    Raises:
        ForerunError: that.
    """
    if not 0.0 <= uniform < 1.0:
        raise ForerunError(f"uniform is {uniform}: give one draw from [0, 1)")


def round_seconds(costs: CostModel, context: RoundContext) -> tuple[float, ...]:
    """C(0), ..., C(limit) of a round in this context."""
    return costs.seconds(context.limit, context_length=context.context_length, batch_size=context.batch_size)


def all_accepted(feedback: RoundFeedback, horizon: int) -> bool:
    """Whether `horizon` drafts were tried and all stood: the only rounds that may promote.

    A draft that a limit, a stop rule or a short look-up made shorter, or that the end of the answer cut, says nothing
    about the horizon, even if all of it stood. Counting such rounds is the ratchet of llama.cpp's issue: depth climbs
    on no evidence.
    """
    return feedback.drafted >= horizon and feedback.accepted == feedback.drafted == feedback.counted
