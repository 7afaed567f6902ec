"""What a round costs: by horizon, by context length, and by whether a draft was rejected.

It knows seconds; what a round gains is not its business.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from jaxtyping import Float64, Int64

from forerun.horizons import CostTable


class CostRegime(ABC):
    """Seconds of rounds, as a function: the world's truth, which policies may be told or learn from rounds."""

    @property
    @abstractmethod
    def name(self) -> str:
        """For tables."""

    @abstractmethod
    def round_seconds(
        self, horizons: Int64[np.ndarray, " horizons"], context_lengths: Int64[np.ndarray, " positions"]
    ) -> Float64[np.ndarray, "positions horizons"]:
        """Seconds of a round in which every draft stands."""

    def rejection_seconds(self, horizons: Int64[np.ndarray, " horizons"]) -> Float64[np.ndarray, " horizons"]:
        """Seconds more where a draft is rejected (a state that has to be restored); 0 unless overridden."""
        return np.zeros(len(horizons))

    @property
    def unused_law_seconds(self) -> float:
        """Seconds of a draft law that a stop rule looked at without drawing from it; 0 unless overridden."""
        return 0.0

    def unused_seconds(self, drafted: int, seen: int) -> float:
        """Seconds of drafting that a stop rule caused without using it.

        Args:
            drafted: tokens that were verified.
            seen: draft laws that the rule looked at, at least as many.
        """
        return (seen - drafted) * self.unused_law_seconds

    def mean_seconds(
        self,
        survivals: Float64[np.ndarray, "positions window"],
        context_lengths: Int64[np.ndarray, " positions"],
    ) -> Float64[np.ndarray, "positions horizons"]:
        """E[C(k)] = c(k) + P(a draft is rejected) c_rej(k) for k = 0..window."""
        horizons = np.arange(survivals.shape[1] + 1)
        all_stand = np.concatenate([np.ones((len(survivals), 1)), survivals], axis=1)
        rejected = (1.0 - all_stand) * self.rejection_seconds(horizons)
        return np.asarray(self.round_seconds(horizons, context_lengths) + rejected)

    def table(self, max_horizon: int, context_length: int, survivals: Float64[np.ndarray, " window"]) -> CostTable:
        """The profile that a policy starts from: mean seconds of every horizon at one context length.

        Args:
            max_horizon: largest horizon.
            context_length: committed tokens.
            survivals: of a typical round; they matter only where a rejection costs time.
        """
        mean = self.mean_seconds(survivals[None, :max_horizon], np.array([context_length]))[0]
        return CostTable.from_profile(enumerate(mean.tolist()))
