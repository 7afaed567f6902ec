"""A policy that is not trusted to be faster than plain decoding, but checked against it from time to time."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from math import hypot, sqrt
from typing import final

from forerun.errors import ForerunError
from forerun.horizons.context import Choice, RoundContext, RoundFeedback
from forerun.horizons.policy import HorizonPolicy
from forerun.horizons.signals import Signal


class Phase(Enum):
    """What the rounds of a guarded policy are for."""

    DRAFTING = "drafting"
    """The other policy decides."""
    PROBING = "probing"
    """The other policy decides, but for every few rounds at horizon 0: which of both is faster?"""
    RESTING = "resting"
    """Horizon 0, because drafting does not pay."""
    LOOKING = "looking"
    """The limit, so that the other policy learns what it missed."""
    TRYING = "trying"
    """As in a probe, but drafting has to show that it pays again."""


@final
class Guarded(HorizonPolicy):
    """Another policy with a probe of plain decoding; drafting stops where it does not pay, and never for good.

    After `first_probe` rounds, and then after every `probe_every`, come `probe_rounds` rounds of which every
    `plain_every`-th has horizon 0. If the others' tokens per second are below `disable_below` times those of the plain
    ones, by more than the probe's own standard error, drafting rests. Both are measured in the same rounds: what a
    round costs depends on the context's length, and how well drafting goes on the text.

    After `rest_rounds` rounds it is looked at again: `look_rounds` rounds draft the limit, so that a policy that plans
    0 learns too, then come `trial_rounds` rounds like those of a probe. If drafting reaches `enable_above` times the
    plain rate, it goes on; otherwise it rests twice as long, up to `probe_every` rounds.

    Past rounds alone settle what a round is for, so every exact rule keeps the target's law. The other policy observes
    all rounds, those without drafts included: they teach costs.

    A policy that drafts in some contexts only, and gains less than the margin by it, is switched off too: that is what
    `disable_below` asks for.

    Args:
        inner: decides while drafting pays.
        probe_every: rounds between probes, and the longest rest.
        probe_rounds: rounds of a probe.
        plain_every: which rounds of probes and trials are plain.
        first_probe: rounds before the first probe.
        disable_below: least gain over plain decoding, as a ratio of rates.
        enable_above: gain that a trial has to show.
        rest_rounds: rounds of the first rest.
        look_rounds: see above.
        trial_rounds: see above.

    Raises:
        ForerunError: a phase without rounds (looking may have none), a probe or trial without plain or without drafting
            rounds, an `enable_above` below `disable_below`, or a policy that shapes trees.

    References:
        The profit controller of a llama.cpp fork: a probe without speculation every 1024 cycles, margins of 5 %. The
        length of a probe and its mixed rounds, its error, rests, and the look before a trial are ours.
    """

    def __init__(
        self,
        inner: HorizonPolicy,
        *,
        probe_every: int = 1024,
        probe_rounds: int = 128,
        plain_every: int = 8,
        first_probe: int = 64,
        disable_below: float = 1.05,
        enable_above: float = 1.1,
        rest_rounds: int = 128,
        look_rounds: int = 16,
        trial_rounds: int = 64,
    ) -> None:
        if min(probe_every, first_probe, rest_rounds) < 1 or look_rounds < 0:
            raise ForerunError("a guard's phases need at least 1 round each, looking 0 or more")
        if not 2 <= plain_every <= min(probe_rounds, trial_rounds):
            raise ForerunError(
                f"plain_every is {plain_every}: give at least 2 and at most the {probe_rounds} rounds of a probe and "
                f"the {trial_rounds} of a trial"
            )
        if not 0.0 < disable_below <= enable_above:
            raise ForerunError(
                f"disable_below is {disable_below} and enable_above {enable_above}: give 0 < disable_below <= "
                "enable_above, or drafting would go on and off at once"
            )
        if inner.shapes_trees:
            raise ForerunError(f"a guard looks at whole chains and {inner.name} shapes trees; take it without a guard")
        self.inner = inner
        self.probe_every = probe_every
        self.probe_rounds = probe_rounds
        self.plain_every = plain_every
        self.first_probe = first_probe
        self.disable_below = disable_below
        self.enable_above = enable_above
        self.rest_rounds = rest_rounds
        self.look_rounds = look_rounds
        self.trial_rounds = trial_rounds
        self.phase = Phase.DRAFTING
        self._left = first_probe
        self._rest = rest_rounds
        self._drafting = _Rate()
        self._plain = _Rate()

    @property
    def name(self) -> str:
        """The other's with `-guarded`."""
        return f"{self.inner.name}-guarded"

    @property
    def wants(self) -> frozenset[Signal]:
        """The other's."""
        return self.inner.wants

    @property
    def horizon_dependent(self) -> bool:
        """The other's."""
        return self.inner.horizon_dependent

    @property
    def ends_drafts(self) -> bool:
        """Whether the other's choices may."""
        return self.inner.ends_drafts

    @property
    def exact(self) -> bool:
        """As the other is."""
        return self.inner.exact

    def propose(self, context: RoundContext, *, uniform: float) -> Choice:
        """As the other says, or horizon 0, or the limit."""
        chosen = self.inner.propose(context, uniform=uniform)
        limit = context.limit
        if self.phase is Phase.LOOKING:
            horizon = limit
        elif self._is_plain:
            horizon = 0
        else:
            return chosen
        certain = (1.0,) * horizon + (0.0,) * (limit - horizon)
        return replace(chosen, horizon=horizon, planned=horizon, explored=False, propensities=certain, stop=None)

    def observe(self, feedback: RoundFeedback) -> None:
        """The other learns; in a probe or trial the round counts for its side, and may be the phase's last."""
        self.inner.observe(feedback)
        (self._plain if self._is_plain else self._drafting).add(feedback)
        self._left -= 1
        if self._left == 0:
            self._next()

    def clone(self) -> Guarded:
        """The same guard around a clone of the other, before its first probe."""
        return Guarded(
            self.inner.clone(),
            probe_every=self.probe_every,
            probe_rounds=self.probe_rounds,
            plain_every=self.plain_every,
            first_probe=self.first_probe,
            disable_below=self.disable_below,
            enable_above=self.enable_above,
            rest_rounds=self.rest_rounds,
            look_rounds=self.look_rounds,
            trial_rounds=self.trial_rounds,
        )

    @property
    def _is_plain(self) -> bool:
        """Whether the round has horizon 0 for the guard's own reasons."""
        mixed = self.phase in (Phase.PROBING, Phase.TRYING)
        return self.phase is Phase.RESTING or (mixed and self._left % self.plain_every == 0)

    def _next(self) -> None:
        """Begin another phase."""
        match self.phase:
            case Phase.DRAFTING:
                self._begin(Phase.PROBING, self.probe_rounds)
            case Phase.PROBING:
                if self._gain * (1.0 + self._gain_error) < self.disable_below:
                    self._begin(Phase.RESTING, self._rest)
                else:
                    self._begin(Phase.DRAFTING, self.probe_every)
            case Phase.RESTING if self.look_rounds:
                self._begin(Phase.LOOKING, self.look_rounds)
            case Phase.RESTING | Phase.LOOKING:
                self._begin(Phase.TRYING, self.trial_rounds)
            case Phase.TRYING:
                if self._gain >= self.enable_above:
                    self._rest = self.rest_rounds
                    self._begin(Phase.DRAFTING, self.probe_every)
                else:
                    self._rest = min(2 * self._rest, max(self.probe_every, self.rest_rounds))
                    self._begin(Phase.RESTING, self._rest)

    def _begin(self, phase: Phase, rounds: int) -> None:
        self.phase, self._left = phase, rounds
        self._drafting, self._plain = _Rate(), _Rate()

    @property
    def _gain(self) -> float:
        """Rate of drafting over that of plain decoding in this phase."""
        return self._drafting.value / self._plain.value

    @property
    def _gain_error(self) -> float:
        """Standard error of the gain as a share of it."""
        return hypot(self._drafting.relative_error, self._plain.relative_error)


@final
class _Rate:
    """Tokens per second, a ratio of sums."""

    def __init__(self) -> None:
        self._tokens = 0
        self._seconds = 0.0
        self._squares = [0.0, 0.0, 0.0]

    @property
    def value(self) -> float:
        """Of at least one round."""
        return self._tokens / self._seconds

    @property
    def relative_error(self) -> float:
        """Of a ratio of sums, over the ratio: root of sum of (tokens - rate seconds)^2, over tokens."""
        tokens, mixed, seconds = self._squares
        rate = self.value
        return sqrt(max(0.0, tokens - 2.0 * rate * mixed + rate * rate * seconds)) / self._tokens

    def add(self, feedback: RoundFeedback) -> None:
        """Take in a round."""
        tokens, seconds = feedback.emitted, feedback.seconds
        self._tokens += tokens
        self._seconds += seconds
        products = (tokens * tokens, tokens * seconds, seconds * seconds)
        self._squares = [before + product for before, product in zip(self._squares, products, strict=True)]
