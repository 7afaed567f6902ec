"""SGLang's adaptive steps: a running mean of the accepted count picks a tier, by batch size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from forerun.errors import ForerunError
from forerun.horizons.context import RoundContext, RoundFeedback
from forerun.horizons.rivals.deterministic import DeterministicPolicy

LADDERS: tuple[tuple[int, tuple[int, ...]], ...] = ((1, (1, 3, 5, 7)), (8, (0, 1, 3)), (32, (0, 1)), (64, (0,)))
"""Tiers from a batch size on, as SGLang ships them."""


@final
@dataclass(slots=True)
class _Slot:
    """State of one ladder."""

    tier: int
    mean: float = 0.0
    rounds: int = 0


@final
class EMATiers(DeterministicPolicy):
    """Tier up while m > step - 0.5 + up, down while m <= next lower step - 0.5 + down; m is the mean accepted count.

    With these thresholds a tier 0 above which another stands is left at the first decision, and never chosen again; a
    ladder of 0 alone switches drafting off. A batch's mean is taken over its requests one by one.

    Args:
        alpha: rate of the running mean, which starts at the first count.
        warmup_rounds: no decision before so many rounds of a ladder.
        decide_every: rounds from decision to decision.
        up: hysteresis upwards.
        down: hysteresis downwards.
        ladders: pairs of smallest batch size and rising steps; the first pair is for batch size 1.
        start: the first tier is the largest step that is not above this.

    Raises:
        ForerunError: a ladder that does not rise, or ladders that do not.

    References:
        SGLang, speculative/adaptive_spec_params.py.
    """

    def __init__(
        self,
        *,
        alpha: float = 0.2,
        warmup_rounds: int = 10,
        decide_every: int = 5,
        up: float = 0.0,
        down: float = -0.25,
        ladders: tuple[tuple[int, tuple[int, ...]], ...] = LADDERS,
        start: int = 3,
    ) -> None:
        sizes = [size for size, _ in ladders]
        if not ladders or sizes[0] != 1 or sizes != sorted(set(sizes)):
            raise ForerunError(f"ladders are for batch sizes {sizes}: give rising sizes that begin with 1")
        for _, steps in ladders:
            if not steps or list(steps) != sorted(set(steps)) or steps[0] < 0:
                raise ForerunError(f"a ladder has steps {steps}: give rising numbers of tokens")
        self.alpha = alpha
        self.warmup_rounds = warmup_rounds
        self.decide_every = decide_every
        self.up = up
        self.down = down
        self.ladders = ladders
        self.start = start
        self._slots = [_Slot(max(0, sum(step <= start for step in steps) - 1)) for _, steps in ladders]

    @property
    def name(self) -> str:
        """`sglang-ema`."""
        return "sglang-ema"

    def horizon_for(self, context: RoundContext) -> int:
        """The step of the batch size's ladder."""
        index = self._index(context)
        return self.ladders[index][1][self._slots[index].tier]

    def observe(self, feedback: RoundFeedback) -> None:
        """Rounds without drafts bring no count, and rounds cut short by a limit or an end would lower the mean."""
        cut = feedback.rejected_at is None and feedback.counted < self.horizon_for(feedback.context)
        if feedback.drafted == 0 or cut:
            return
        index = self._index(feedback.context)
        slot = self._slots[index]
        slot.mean = feedback.accepted if slot.rounds == 0 else slot.mean + self.alpha * (feedback.accepted - slot.mean)
        slot.rounds += 1
        if slot.rounds >= self.warmup_rounds and (slot.rounds - self.warmup_rounds) % self.decide_every == 0:
            self._move(slot, self.ladders[index][1])

    def clone(self) -> EMATiers:
        """At the first tiers."""
        return EMATiers(
            alpha=self.alpha,
            warmup_rounds=self.warmup_rounds,
            decide_every=self.decide_every,
            up=self.up,
            down=self.down,
            ladders=self.ladders,
            start=self.start,
        )

    def _index(self, context: RoundContext) -> int:
        return sum(size <= context.batch_size for size, _ in self.ladders) - 1

    def _move(self, slot: _Slot, steps: tuple[int, ...]) -> None:
        while slot.tier > 0 and slot.mean <= steps[slot.tier - 1] - 0.5 + self.down:
            slot.tier -= 1
        while slot.tier < len(steps) - 1 and slot.mean > steps[slot.tier] - 0.5 + self.up:
            slot.tier += 1
