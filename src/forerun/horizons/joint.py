"""The interface of policies that decide for all requests of a batch together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import final

from forerun.horizons.context import Choice, RoundContext, RoundFeedback
from forerun.horizons.history import AcceptanceHistory
from forerun.horizons.policy import HorizonPolicy
from forerun.horizons.signals import Signal


class JointPolicy(ABC):
    """Chooses the horizons of a whole pass and learns from all of its rounds.

    Every request takes a seat, which holds what is known about that request alone. Equal inputs give equal horizons,
    whichever process computes them.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Short name for records and tables."""

    @property
    @abstractmethod
    def wants(self) -> frozenset[Signal]:
        """See ``HorizonPolicy.wants``."""

    @abstractmethod
    def propose(
        self, seats: Sequence[Seat], contexts: Sequence[RoundContext], *, uniforms: Sequence[float]
    ) -> list[Choice]:
        """Choose the horizons of the next pass, one for each seat.

        Args:
            seats: of the requests in the pass, in order.
            contexts: what is known about each before drafting.
            uniforms: one draw from [0, 1) for each, made before drafting and independent of every other draw.
        """

    @abstractmethod
    def observe(self, seat: Seat, feedback: RoundFeedback) -> None:
        """Learn from one request's verified round."""

    @abstractmethod
    def clone(self) -> JointPolicy:
        """A policy with the same parameters that has learned nothing."""

    def seat(self) -> Seat:
        """A place for one request."""
        return Seat(self)


@final
class Seat(HorizonPolicy):
    """One request's place in a joint policy; alone it is a batch of one.

    Args:
        joint: decides and learns.
    """

    def __init__(self, joint: JointPolicy) -> None:
        self.joint = joint
        self.history = AcceptanceHistory()

    @property
    def name(self) -> str:
        """The joint policy's."""
        return self.joint.name

    @property
    def wants(self) -> frozenset[Signal]:
        """The joint policy's."""
        return self.joint.wants

    def propose(self, context: RoundContext, *, uniform: float) -> Choice:
        """As the only request."""
        return self.joint.propose([self], [context], uniforms=[uniform])[0]

    def observe(self, feedback: RoundFeedback) -> None:
        """Let the joint policy learn."""
        self.joint.observe(self, feedback)

    def clone(self) -> Seat:
        """The only seat of a clone."""
        return self.joint.clone().seat()
