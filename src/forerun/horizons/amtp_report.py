"""What an AMTP tells about itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AMTPReport:
    """Counters of an AMTP.

    Attributes:
        rounds: rounds observed.
        explored: rounds in which the coin drafted more than was planned, or would have where that was the limit.
        informative: rounds with at least one drafted position that counts.
        invalid_hazards: predictions outside [0, 1] or NaN that were read as 1.
        cost_outliers: round times that the cost table dropped.
        effective_sample_sizes: effective number of rounds behind each position's hazard.
        tokens_per_second: lambda of the long-run objective; None before the first round.
        disagreed: rounds in which the two objectives would have planned different horizons.
    """

    rounds: int
    explored: int
    informative: int
    invalid_hazards: int
    cost_outliers: int
    effective_sample_sizes: tuple[float, ...]
    tokens_per_second: float | None
    disagreed: int
