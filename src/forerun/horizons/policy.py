"""The interface of everything that decides how many tokens to draft next.

It knows nothing about models, tokens or laws: a serving engine's scheduler can import it without torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from forerun.horizons.context import Choice, RoundContext, RoundFeedback
from forerun.horizons.signals import Signal


class HorizonPolicy(ABC):
    """Chooses the horizon of each round before drafting and learns from the round afterwards.

    The object owns its learned state; it may serve many requests one after another and keeps what it learned.
    Parameters are stored by the constructor, learned state is private.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Short name for records and tables."""

    @property
    def wants(self) -> frozenset[Signal]:
        """Optional parts of the context that the policy looks at; engines need not compute others."""
        return frozenset({Signal.TARGET_LAW})

    @property
    def horizon_dependent(self) -> bool:
        """Whether the policy allows for drafts whose quality depends on how many are drafted.

        A drafter that is not prefix-consistent (a block whose positions see each other) drafts its whole block for any
        other policy, and the horizon decides how many of the drafts are verified.
        """
        return False

    @property
    def ends_drafts(self) -> bool:
        """Whether choices may carry a stop rule. Only chains can be ended while they are drawn."""
        return False

    @property
    def shapes_trees(self) -> bool:
        """Whether choices carry a ``branching``. Only drafters of trees can draw one."""
        return False

    @property
    def exact(self) -> bool:
        """Whether every exact rule keeps the target's law under this policy.

        Only a policy that drops drafted tokens after looking at them says no; rules whose `truncation` is any draft
        bear even that.
        """
        return True

    @abstractmethod
    def propose(self, context: RoundContext, *, uniform: float) -> Choice:
        """Choose the horizon of the next round.

        Args:
            context: what is known before drafting.
            uniform: one draw from [0, 1), made before drafting and independent of every draw that drafts, accepts or
                emits tokens. Policies that do not explore ignore it.

        Raises:
            ForerunError: `uniform` is outside [0, 1).
        """

    @abstractmethod
    def observe(self, feedback: RoundFeedback) -> None:
        """Learn from a verified round; called once for every round, horizon 0 included."""

    @abstractmethod
    def clone(self) -> HorizonPolicy:
        """A policy with the same parameters that has learned nothing."""
