"""AMTP for a batch: one learner for all requests, horizons that share one pass.

It knows numbers about rounds and nothing about tokens, laws or models.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from math import inf
from typing import final

import numpy as np

from forerun.errors import ForerunError
from forerun.horizons.batch_schedule import BatchSchedule, bucketed, ragged, uniform
from forerun.horizons.context import Choice, RoundContext, RoundFeedback
from forerun.horizons.cost_surface import CostSurface
from forerun.horizons.evidence import evidence
from forerun.horizons.exploration import EffectiveSampleSize, propensities
from forerun.horizons.features import FEATURE_NAMES, SIGNALS, FeatureLevel, scaled_features
from forerun.horizons.hazards import Logistic
from forerun.horizons.joint import JointPolicy, Seat
from forerun.horizons.learner import Learner, kind_of_state
from forerun.horizons.plain import check_keys, check_same, read_int
from forerun.horizons.signals import Signal

FORMAT = "forerun-joint-amtp/1"


class Shape(Enum):
    """Which horizons may stand together in a pass."""

    RAGGED = "ragged"
    """Any."""
    UNIFORM = "uniform"
    """One for all."""
    BUCKETED = "bucketed"
    """At most three different ones."""


class Drafting(Enum):
    """How a batch is drafted, for its cost."""

    SEQUENTIAL = "sequential"
    """One request after the other, as this package's engine does: cost follows the sum of horizons."""
    TOGETHER = "together"
    """All at once, in a rectangle: cost follows the largest horizon."""


@final
class JointAMTP(JointPolicy):
    """Horizons of a batch by the global maximum of expected tokens over the pass's cost.

    Hazards come from one learner that all requests teach; each request's features come from its own context and
    history. `ragged` and its siblings search all totals, so the cost may be a staircase.

    Exploration: one request of the pass at a time. With B requests each one's coin comes up with probability
    min(epsilon, 1 / B), the first request's draw decides which, and then that request drafts its limit.

    Without costs, nothing is trimmed; every `measure_every`-th pass drafts nothing until such passes are measured.

    Args:
        costs: to start from, copied; None measures as it goes.
        learner: settings of the hazard model.
        features: what the hazards may look at; F4 is for single requests only.
        shape: which horizons may stand together.
        drafting: what drafting costs.
        soft_labels: see `AMTP`.
        epsilon: probability that a request drafts its limit.
        importance_clip: see `AMTP`.
        prior_hazards: see `AMTP`.
        warmup_rounds: rounds, over all requests, decided by the prior hazards.
        measure_every: see above.

    Raises:
        ForerunError: a parameter out of range.

    References:
        AMTP for the hazards; batch scheduling by survival as in DSpark, without its early stop.
    """

    def __init__(
        self,
        *,
        costs: CostSurface | None = None,
        learner: Learner | None = None,
        features: FeatureLevel = FeatureLevel.F2,
        shape: Shape = Shape.RAGGED,
        drafting: Drafting = Drafting.SEQUENTIAL,
        soft_labels: bool = True,
        epsilon: float = 0.02,
        importance_clip: float = 20.0,
        prior_hazards: tuple[float, ...] = (0.2,),
        warmup_rounds: int = 16,
        measure_every: int = 4,
    ) -> None:
        if not 0.0 <= epsilon <= 1.0:
            raise ForerunError(f"epsilon is {epsilon}: give a probability")
        if features is FeatureLevel.F4:
            raise ForerunError("features F4 look at draft laws, which a joint policy does not see; choose F3 or below")
        if not (importance_clip >= 1.0 and warmup_rounds >= 0 and measure_every >= 2 and prior_hazards):
            raise ForerunError(
                "importance_clip must be at least 1, warmup_rounds 0 or more, measure_every at least 2, and a prior "
                "hazard given"
            )
        self.costs = costs
        self.learner = Logistic() if learner is None else learner
        self.features = features
        self.shape = shape
        self.drafting = drafting
        self.soft_labels = soft_labels
        self.epsilon = epsilon
        self.importance_clip = importance_clip
        self.prior_hazards = prior_hazards
        self.warmup_rounds = warmup_rounds
        self.measure_every = measure_every
        self._costs = CostSurface() if costs is None else costs.copy()
        self._hazards = self.learner.start(
            num_features=len(FEATURE_NAMES[features]), position_feature=False, prior_hazards=prior_hazards
        )
        self._sizes = EffectiveSampleSize()
        self._rounds = 0
        self._passes = 0
        self._pass_observed = True

    @property
    def name(self) -> str:
        """`joint-amtp` and the shape."""
        return f"joint-amtp-{self.shape.value}"

    @property
    def wants(self) -> frozenset[Signal]:
        """What the feature level looks at."""
        return SIGNALS[self.features]

    @property
    def cost_surface(self) -> CostSurface:
        """The costs as learned so far (a copy)."""
        return self._costs.copy()

    @property
    def effective_sample_sizes(self) -> tuple[float, ...]:
        """Effective number of rounds behind each position's hazard, over all requests."""
        return self._sizes.sizes

    def propose(
        self, seats: Sequence[Seat], contexts: Sequence[RoundContext], *, uniforms: Sequence[float]
    ) -> list[Choice]:
        """See :class:`JointPolicy`."""
        if not len(seats) == len(contexts) == len(uniforms) or not seats:
            raise ForerunError("a joint policy needs a seat, a context and a draw for each request, at least one")
        if not 0.0 <= uniforms[0] < 1.0:
            raise ForerunError(f"uniform is {uniforms[0]}: give one draw from [0, 1)")
        self._pass_observed = False
        rows = len(seats)
        limits = [context.limit for context in contexts]
        width = max(limits)
        features = [
            scaled_features(context, seat.history, self.features) for context, seat in zip(contexts, seats, strict=True)
        ]
        if self._rounds < self.warmup_rounds:
            prior = [self.prior_hazards[min(i, len(self.prior_hazards) - 1)] for i in range(width)]
            hazards = np.tile(prior, (rows, 1)).reshape(rows, width)
        else:
            hazards = self._hazards.predict_rows(features, width)
        survivals = np.cumprod(1.0 - hazards, axis=1)
        survivals[np.arange(width) >= np.array(limits)[:, None]] = 0.0
        planned = self._planned(survivals, limits, contexts)
        epsilon = min(self.epsilon, 1.0 / rows)
        explorer = int(uniforms[0] / epsilon) if uniforms[0] < epsilon * rows else rows
        return [
            Choice(
                horizon=limit if row == explorer else plan,
                planned=plan,
                explored=row == explorer,
                propensities=propensities(plan, limit, epsilon),
                survival=tuple(curve[:limit]),
                features=feature,
            )
            for row, (plan, limit, curve, feature) in enumerate(
                zip(planned, limits, survivals.tolist(), features, strict=True)
            )
        ]

    def observe(self, seat: Seat, feedback: RoundFeedback) -> None:
        """Learn from one request's verified round; the first of a pass brings the pass's cost."""
        self._rounds += 1
        if self._pass_observed:
            self._costs.observe_draft(feedback)
        else:
            self._costs.observe_round(feedback)
            self._pass_observed = True
            self._passes += 1
        items = evidence(feedback, soft=self.soft_labels, importance_clip=self.importance_clip)
        self._sizes.observe(items)
        seat.history.observe(feedback, items)
        if self._hazards.own_evidence:
            items = self._hazards.evidence(feedback, soft=self.soft_labels, importance_clip=self.importance_clip)
        self._hazards.update(feedback.choice.features, items)

    def clone(self) -> JointAMTP:
        """The same parameters, including the costs given at the start; nothing learned."""
        return JointAMTP(
            costs=self.costs,
            learner=self.learner,
            features=self.features,
            shape=self.shape,
            drafting=self.drafting,
            soft_labels=self.soft_labels,
            epsilon=self.epsilon,
            importance_clip=self.importance_clip,
            prior_hazards=self.prior_hazards,
            warmup_rounds=self.warmup_rounds,
            measure_every=self.measure_every,
        )

    def state_dict(self) -> dict[str, object]:
        """What all requests taught, costs included, as plain data; seats end with their requests."""
        return {
            **kind_of_state(FORMAT, self.features, self.learner),
            "rounds": self._rounds,
            "passes": self._passes,
            "hazards": self._hazards.state_dict(),
            "effective_sample_sizes": self._sizes.state_dict(),
            "costs": self._costs.state_dict(),
        }

    def load_state_dict(self, data: object) -> None:
        """Continue from a saved state, between passes.

        Raises:
            ForerunError: the state is none of such a policy. The policy is then unchanged.
        """
        fresh = self.clone()
        state = check_keys(data, tuple(fresh.state_dict()), "joint AMTP state")
        check_same(state, kind_of_state(FORMAT, self.features, self.learner), "joint AMTP state")
        fresh._hazards.load_state_dict(state["hazards"])
        fresh._sizes.load_state_dict(state["effective_sample_sizes"])
        costs = CostSurface.from_state_dict(state["costs"])
        rounds, passes = read_int(state["rounds"], "rounds"), read_int(state["passes"], "passes")
        self._hazards, self._sizes, self._costs = fresh._hazards, fresh._sizes, costs
        self._rounds, self._passes = rounds, passes

    def _planned(self, survivals: np.ndarray, limits: list[int], contexts: Sequence[RoundContext]) -> list[int]:
        rows, width = survivals.shape
        mean_context = sum(context.context_length for context in contexts) // rows
        verify = self._costs.verify_seconds(rows * (width + 1), mean_context, rows)[rows:]
        draft = np.array(self._costs.draft_seconds(width))
        known = self._costs.widths_at(rows)
        if len(known) < 2 or not (verify[-1] < inf and draft[-1] < inf):
            measuring = self.costs is None and self._passes % self.measure_every == self.measure_every - 1
            measuring = measuring and rows not in known
            return [0] * rows if measuring else limits
        verify = verify + rows * self._costs.rest_seconds
        together = self.drafting is Drafting.TOGETHER
        if not together and width:
            verify = verify + np.arange(len(verify)) * (draft[-1] / width)
        return list(self._schedule(survivals, verify, limits, draft if together else None).horizons)

    def _schedule(
        self, survivals: np.ndarray, verify: np.ndarray, limits: list[int], draft: np.ndarray | None
    ) -> BatchSchedule:
        costs = verify.tolist()
        drafts = None if draft is None else draft.tolist()
        match self.shape:
            case Shape.RAGGED:
                return ragged(survivals, costs, draft_seconds=drafts)
            case Shape.UNIFORM:
                return uniform(survivals, costs, limits=limits, draft_seconds=drafts)
            case Shape.BUCKETED:
                return bucketed(survivals, costs, limits=limits, buckets=3, draft_seconds=drafts)
