"""What every position of one answer has in store for a round that begins there.

The text is fixed, so a controller decides only where rounds begin: i <- i + 1 + min(horizon, accepted at i). It does
not matter here whether a model was recorded or a world simulated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float64

from forerun.errors import ForerunError
from forerun.horizons import DrawnToken, RoundContext


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Track:
    """One answer; all tuples have an entry for each position at which a round may begin.

    Attributes:
        name: of the answer.
        task: where its prompt comes from.
        contexts: what a policy is told.
        coins: the policy's coin.
        accepted: drafts of the whole window that stand.
        accept_probabilities: of the whole window, as in ``RoundFeedback``.
        overlaps: likewise.
        censored: likewise.
        drawn: what a stop rule would see of the whole window.
        time_factors: by which the seconds that a policy is told differ from the true ones; scores use the true ones.
        survivals: the true s_j of each position where a simulation knows them, or their estimate; else ``None``.
        told_survivals: their means given the signals of the position alone, where a simulation knows these.
        estimated: the survivals are an estimate.

    Raises:
        ForerunError: tuples of different lengths.
    """

    name: str
    task: str
    contexts: tuple[RoundContext, ...]
    coins: tuple[float, ...]
    accepted: tuple[int, ...]
    accept_probabilities: tuple[tuple[float, ...], ...]
    overlaps: tuple[tuple[float, ...], ...]
    censored: tuple[int | None, ...]
    drawn: tuple[tuple[DrawnToken, ...], ...]
    time_factors: tuple[float, ...]
    survivals: Float64[np.ndarray, "positions window"] | None
    told_survivals: Float64[np.ndarray, "positions window"] | None = None
    estimated: bool = False

    def __post_init__(self) -> None:
        sizes = {
            len(self.contexts), len(self.coins), len(self.accepted), len(self.accept_probabilities), len(self.overlaps),
            len(self.censored), len(self.drawn), len(self.time_factors),
        }  # fmt: skip
        if len(sizes) != 1:
            raise ForerunError(f"track {self.name} has entries for {sorted(sizes)} positions: give one for each")

    def __len__(self) -> int:
        """Positions, and tokens that the rounds have to emit."""
        return len(self.contexts)

    @property
    def limits(self) -> np.ndarray:
        """Largest horizon at each position."""
        return np.array([context.limit for context in self.contexts], dtype=np.int64)

    @property
    def context_lengths(self) -> np.ndarray:
        """Committed tokens at each position."""
        return np.array([context.context_length for context in self.contexts], dtype=np.int64)

    @property
    def max_limit(self) -> int:
        """Largest of the limits."""
        return max(context.limit for context in self.contexts)
