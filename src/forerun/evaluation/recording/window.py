"""Drafting and verifying the whole window at every position while only one token is committed.

A rule and a policy that make the engine do this: every round is a real one, and none skips a position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

from jaxtyping import Float64
from torch import Tensor

from forerun.distributions import Law, PointLaw
from forerun.horizons import (
    Choice,
    DraftStatistics,
    DrawnToken,
    FixedHorizon,
    HorizonPolicy,
    RoundContext,
    RoundFeedback,
    Signal,
    StopRule,
)
from forerun.verification import Agreement, Outcome, Proposal, Rule, Truncation


@final
class WindowRule(Rule):
    """Agreement that commits the target's first token only and remembers how far the draft would have stood."""

    def __init__(self) -> None:
        self._agreement = Agreement()
        self._accepted = 0

    @property
    def name(self) -> str:
        """``agreement``: the text is the same."""
        return self._agreement.name

    @property
    def exact(self) -> bool:
        """Yes."""
        return self._agreement.exact

    @property
    def draws_as_plain_decoding(self) -> bool:
        """Yes."""
        return self._agreement.draws_as_plain_decoding

    @property
    def needs_draft_law(self) -> bool:
        """No."""
        return self._agreement.needs_draft_law

    @property
    def truncation(self) -> Truncation:
        """Any."""
        return self._agreement.truncation

    def verify(self, target: Law, proposal: Proposal, *, uniforms: Float64[Tensor, " horizon"]) -> Outcome:
        """Agreement's verdict is kept for ``take``; all drafts are dropped, and their first target token comes out."""
        outcome = self._agreement.verify(target, proposal, uniforms=uniforms)
        self._accepted = outcome.accepted
        first = outcome.emission if outcome.accepted == 0 else PointLaw(proposal.token_ids[:1], target.vocab_size)
        return Outcome(
            accepted=0,
            emission=first,
            accept_probabilities=outcome.accept_probabilities,
            overlaps=outcome.overlaps,
        )

    def take(self) -> int:
        """How many drafts of the last round would have stood; 0 where nothing was drafted."""
        accepted, self._accepted = self._accepted, 0
        return accepted


@final
@dataclass(frozen=True, slots=True)
class NeverStop(StopRule):
    """Draws the whole horizon; its presence makes the engine describe every draft law."""

    def draws(self, drawn: Sequence[DrawnToken], law: DraftStatistics) -> bool:
        """Yes."""
        return True

    def continues(self, drawn: Sequence[DrawnToken]) -> bool:
        """Yes."""
        return True


@final
class WindowPolicy(HorizonPolicy):
    """Drafts as much as the round allows and keeps what it is told.

    Args:
        largest: tokens to draft.
    """

    def __init__(self, largest: int) -> None:
        self.largest = largest
        self.feedback: list[RoundFeedback] = []
        self._inner = FixedHorizon(largest)

    @property
    def name(self) -> str:
        """``whole window``."""
        return "whole window"

    @property
    def wants(self) -> frozenset[Signal]:
        """Everything that the engine has, since nobody knows yet what the replayed policies will ask for."""
        return frozenset(Signal) - {Signal.DRAFT_MARGINS}

    def propose(self, context: RoundContext, *, uniform: float) -> Choice:
        """The limit, as far as the window reaches."""
        return replace(self._inner.propose(context, uniform=uniform), stop=NeverStop())

    def observe(self, feedback: RoundFeedback) -> None:
        """Keep it."""
        self.feedback.append(feedback)

    def clone(self) -> WindowPolicy:
        """The same window, nothing kept."""
        return WindowPolicy(self.largest)
