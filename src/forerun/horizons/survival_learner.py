"""Survivals predicted directly, without hazards: the ablation that the paper leaves open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import final

from forerun.errors import ForerunError
from forerun.horizons.context import RoundFeedback
from forerun.horizons.evidence import Evidence, survival_evidence
from forerun.horizons.hazards import LogisticHazards
from forerun.horizons.learner import HazardLearner, Learner


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DirectSurvival(Learner):
    """Settings of `SurvivalLearner`.

    Attributes:
        learning_rate: AdaGrad's step length.

    Raises:
        ForerunError: the rate is not above 0.
    """

    learning_rate: float = 0.2

    def __post_init__(self) -> None:
        if not 0.0 < self.learning_rate < inf:
            raise ForerunError(f"learning_rate is {self.learning_rate}: give a number above 0")

    def start(self, *, num_features: int, position_feature: bool, prior_hazards: Sequence[float]) -> SurvivalLearner:
        """See :class:`Learner`."""
        survival, priors = 1.0, []
        for index in range(64):
            survival *= 1.0 - prior_hazards[min(index, len(prior_hazards) - 1)]
            priors.append(1.0 - min(max(survival, 1e-6), 1.0 - 1e-6))
        return SurvivalLearner(
            LogisticHazards(
                num_features=num_features,
                position_feature=position_feature,
                prior_hazards=priors,
                learning_rate=self.learning_rate,
            )
        )


@final
class SurvivalLearner(HazardLearner):
    """s_j = 1 - sigmoid(bias_j + <slopes, features>), made non-increasing by a running minimum.

    Every drafted position is a label for its survival, with weight 1; a rejection at j is a label 0 for all deeper
    drafted positions. Hazards follow as 1 - s_j / s_{j-1}.

    Args:
        inner: predicts 1 - s_j as it would predict a hazard.
    """

    own_evidence = True

    def __init__(self, inner: LogisticHazards) -> None:
        self._inner = inner

    def predict(self, features: Sequence[float], limit: int) -> list[float]:
        """Hazards of the predicted survivals."""
        hazards = []
        before = 1.0
        for lost in self._inner.predict(features, limit):
            survival = min(before, 1.0 - lost)
            hazards.append(1.0 - survival / before)
            before = survival
        return hazards

    def update(self, features: Sequence[float], evidence: Evidence) -> None:
        """One step on log loss of the survivals."""
        self._inner.update(features, evidence._replace(labels=[1.0 - label for label in evidence.labels]))

    def evidence(
        self,
        feedback: RoundFeedback,
        *,
        soft: bool,
        importance_clip: float,
        survival_weighted: bool = True,
        inverse_propensity: bool = True,
    ) -> Evidence:
        """Labels of survivals; they have no survival weight to leave out."""
        items = survival_evidence(feedback, soft=soft, importance_clip=importance_clip)
        return items if inverse_propensity else Evidence(items.weights, items.labels, items.weights, items.weights)

    def state_dict(self) -> dict[str, object]:
        """The learned state as plain data."""
        return self._inner.state_dict()

    def load_state_dict(self, data: object) -> None:
        """Take over a saved state."""
        self._inner.load_state_dict(data)
