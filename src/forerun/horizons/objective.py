"""What a round maximises, the long-run rate behind one of the answers, and what ablations leave out."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import final

from forerun.horizons.plain import check_keys, read_float, read_int

RATE = 0.01


class Objective(Enum):
    """What the planned horizon maximises."""

    RATIO = "G/C"
    """The round's own expected tokens per second, as the paper has it; its regret is stated in this."""
    RENEWAL = "G-lambda*C"
    """Expected tokens minus the time at the long-run rate lambda: what makes sum G / sum C largest."""


class Ablation(Enum):
    """Something left out of AMTP, to show what it is for."""

    UNWEIGHTED_LOSS = "unweighted hazard loss"
    """Every drafted position counts alike, whatever the survival of its prefix."""
    NAIVE_POOLING = "naive pooling"
    """No inverse-probability weights."""


@final
class LongRunRate:
    """lambda = running mean of tokens / running mean of seconds, alpha 0.01 (plain means at first)."""

    def __init__(self) -> None:
        self._tokens = 0.0
        self._seconds = 0.0
        self._rounds = 0

    @property
    def value(self) -> float | None:
        """Tokens per second; None before the first round."""
        return self._tokens / self._seconds if self._rounds else None

    def value_or(self, hazards: Sequence[float], costs: Sequence[float]) -> float:
        """The rate, before the first round the best G / C of the round that is being planned."""
        if self._rounds:
            return self._tokens / self._seconds
        best, gain, reached = 1.0 / costs[0], 1.0, 1.0
        for hazard, cost in zip(hazards, costs[1:], strict=True):
            reached *= 1.0 - hazard
            gain += reached
            best = max(best, gain / cost)
        return best

    def observe(self, tokens: int, seconds: float) -> None:
        """Take in a round."""
        self._rounds += 1
        young = 1.0 / self._rounds
        alpha = young if young > RATE else RATE
        self._tokens += alpha * (tokens - self._tokens)
        self._seconds += alpha * (seconds - self._seconds)

    def state_dict(self) -> dict[str, object]:
        """The state as plain data."""
        return {"tokens": self._tokens, "seconds": self._seconds, "rounds": self._rounds}

    def load_state_dict(self, data: object) -> None:
        """Take over a saved state.

        Raises:
            ForerunError: a key is missing, unknown or of the wrong kind.
        """
        state = check_keys(data, ("tokens", "seconds", "rounds"), "long-run rate")
        self._tokens, self._seconds = read_float(state["tokens"], "tokens"), read_float(state["seconds"], "seconds")
        self._rounds = read_int(state["rounds"], "rounds")
