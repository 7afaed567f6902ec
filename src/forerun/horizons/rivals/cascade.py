"""Cascade: try every horizon for a few rounds, keep the best for a while, and draft nothing where nothing pays."""

from __future__ import annotations

from typing import final

from forerun.errors import ForerunError
from forerun.horizons.context import RoundContext, RoundFeedback
from forerun.horizons.rivals.deterministic import DeterministicPolicy


@final
class Cascade(DeterministicPolicy):
    """Test phase: `test_rounds` rounds of each horizon, 0 first. Set phase: `set_rounds` rounds of the best. Repeat.

    Utility of k: tokens per second at k over tokens per second at 0, both as measured in the test phase; where no k has
    a utility of 1 or more, the set phase runs without drafts. The next test phase finds the way back.

    Rounds that could not draft the horizon in question (a limit below it) pass by uncounted in its measure.

    Args:
        horizons: to be tested besides 0, rising.
        test_rounds: of each.
        set_rounds: after them.

    Raises:
        ForerunError: horizons that do not rise from 1 or more, or a phase without rounds.

    References:
        arXiv 2506.20675. The phase lengths are ours (the paper's are not recovered), hence "style".
    """

    def __init__(self, *, horizons: tuple[int, ...] = (1, 2, 4, 8), test_rounds: int = 4, set_rounds: int = 64) -> None:
        if not horizons or list(horizons) != sorted(set(horizons)) or horizons[0] < 1:
            raise ForerunError(f"horizons are {horizons}: give rising numbers of tokens, the first at least 1")
        if test_rounds < 1 or set_rounds < 1:
            raise ForerunError(f"phases have {test_rounds} and {set_rounds} rounds: give at least 1 each")
        self.horizons = horizons
        self.test_rounds = test_rounds
        self.set_rounds = set_rounds
        self._round = 0
        self._chosen = 0
        self._tokens: dict[int, int] = {}
        self._seconds: dict[int, float] = {}

    @property
    def name(self) -> str:
        """`cascade-style`."""
        return "cascade-style"

    def horizon_for(self, context: RoundContext) -> int:
        """The one being tested, or the one chosen."""
        tested = (0, *self.horizons)
        index = self._round // self.test_rounds
        return tested[index] if index < len(tested) else self._chosen

    def observe(self, feedback: RoundFeedback) -> None:
        """One round on in the phases."""
        horizon = self.horizon_for(feedback.context)
        testing = self.test_rounds * (1 + len(self.horizons))
        if self._round < testing and feedback.drafted == horizon:
            self._tokens[horizon] = self._tokens.get(horizon, 0) + 1 + feedback.accepted
            self._seconds[horizon] = self._seconds.get(horizon, 0.0) + feedback.seconds
        self._round += 1
        if self._round == testing:
            rates = {tested: tokens / self._seconds[tested] for tested, tokens in self._tokens.items()}
            self._chosen = max(sorted(rates, reverse=True), key=lambda tested: rates[tested], default=0)
        elif self._round == testing + self.set_rounds:
            self._round, self._tokens, self._seconds = 0, {}, {}

    def clone(self) -> Cascade:
        """At the beginning of a test phase."""
        return Cascade(horizons=self.horizons, test_rounds=self.test_rounds, set_rounds=self.set_rounds)
