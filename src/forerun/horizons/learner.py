"""What AMTP asks of a model of rejection hazards, and of the settings that start one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from forerun.horizons.context import RoundFeedback
from forerun.horizons.evidence import Evidence, evidence
from forerun.horizons.features import FEATURE_NAMES, FeatureLevel

HAZARD_MIN = 1e-3
"""Learned hazards of the practice mode stay this far from 0 and 1."""


class HazardLearner(ABC):
    """Hazards from features, learned online. It knows numbers; horizons, costs and coins are not its business."""

    own_evidence: ClassVar[bool] = False
    """Whether it learns from something else than the evidence of hazards."""

    @abstractmethod
    def predict(self, features: Sequence[float], limit: int) -> list[float]:
        """The hazards of positions 1..limit, each in [0, 1]. O(limit * features) at most."""

    def predict_rows(self, features: Sequence[Sequence[float]], limit: int) -> np.ndarray:
        """The hazards of many requests: (requests, limit)."""
        rows: np.ndarray = np.array([self.predict(row, limit) for row in features]).reshape(len(features), limit)
        return rows

    @abstractmethod
    def update(self, features: Sequence[float], evidence: Evidence) -> None:
        """One step on a round's evidence, seen with these features."""

    def evidence(
        self,
        feedback: RoundFeedback,
        *,
        soft: bool,
        importance_clip: float,
        survival_weighted: bool = True,
        inverse_propensity: bool = True,
    ) -> Evidence:
        """What this learner takes from a round; see ``evidence.evidence``."""
        return evidence(
            feedback,
            soft=soft,
            importance_clip=importance_clip,
            survival_weighted=survival_weighted,
            inverse_propensity=inverse_propensity,
        )

    @abstractmethod
    def state_dict(self) -> dict[str, object]:
        """The learned state as plain data."""

    @abstractmethod
    def load_state_dict(self, data: object) -> None:
        """Take over a saved state.

        Raises:
            ForerunError: it is not a state of such a learner. The learner may then be half loaded.
        """


class Learner(ABC):
    """Settings of a hazard learner; ``start`` makes one that has learned nothing."""

    @abstractmethod
    def start(self, *, num_features: int, position_feature: bool, prior_hazards: Sequence[float]) -> HazardLearner:
        """A learner that begins at the prior.

        Args:
            num_features: numbers that all positions share.
            position_feature: whether each position has one more number of its own, behind the shared ones.
            prior_hazards: for position 1, 2, ...; the last one serves all deeper positions.
        """


def kind_of_state(form: str, features: FeatureLevel, learner: Learner | None = None) -> dict[str, object]:
    """What a policy's saved state must share with the policy that goes on with it.

    Args:
        form: name and version of the format.
        features: that the hazards look at.
        learner: its settings, where the policy has a choice of them.
    """
    kind: dict[str, object] = {"format": form, "feature_names": list(FEATURE_NAMES[features])}
    return kind if learner is None else kind | {"learner": type(learner).__name__}
