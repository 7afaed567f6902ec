"""AMTP: choose each round's horizon before drafting, from learned rejection hazards and measured round costs.

    pre-draft features -> hazards -> survivals -> expected tokens G(k) -> argmax of G(k) / C(k)

It knows numbers about rounds and nothing about tokens, laws or models. What the paper leaves open (features, learning
rate, exploration rate, labels, cost estimator, start) is chosen here and documented at the parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import final

from forerun.errors import ForerunError
from forerun.horizons.context import Choice, RoundContext, RoundFeedback
from forerun.horizons.cost import CostTable
from forerun.horizons.evidence import evidence
from forerun.horizons.exploration import EffectiveSampleSize, explores, propensities
from forerun.horizons.features import FEATURE_NAMES, FeatureLevel, scaled_features
from forerun.horizons.hazards import HAZARD_MIN, LogisticHazards
from forerun.horizons.history import AcceptanceHistory
from forerun.horizons.plain import check_keys, read_int
from forerun.horizons.policy import HorizonPolicy
from forerun.horizons.survival import best_horizon, survivals

FORMAT = "forerun-amtp/1"
MEASURED_HORIZONS = (0, 1)
"""What an AMTP without a table measures besides the limit: plain decoding, and the fixed part of drafting at all."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AMTPReport:
    """Counters of an AMTP.

    Attributes:
        rounds: rounds observed.
        explored: rounds in which the coin came up.
        informative: rounds with at least one drafted position that counts.
        invalid_hazards: predictions outside [0, 1] or NaN that were read as 1.
        cost_outliers: round times that the cost table dropped.
        effective_sample_sizes: effective number of rounds behind each position's hazard.
    """

    rounds: int
    explored: int
    informative: int
    invalid_hazards: int
    cost_outliers: int
    effective_sample_sizes: tuple[float, ...]


@final
class AMTP(HorizonPolicy):
    """Adaptive horizons by survival-weighted hazard regression (AMTP, practice mode).

    Each round: features from the context and the history; hazards from `LogisticHazards`; the smallest maximiser of
    G(k) / C(k) over k = 0..limit; then, with probability `epsilon`, the limit instead. After the round, one AdaGrad
    step on the survival-weighted log loss with inverse-probability weights, the history, and the round's cost.

    Start: in the first `warmup_rounds` rounds the prior hazards decide and the learner only learns, so that a few
    unlucky rounds do not switch drafting off. The default prior is optimistic: it drafts and so finds out.

    Without a cost table nothing is trimmed: the limit is drafted as long as its cost is unknown, and afterwards as long
    as no smaller horizon's cost is known. So that this ends, every `measure_every`-th round drafts 0, then 1 token
    until both are measured (a decision by past rounds alone, hence exact). With a table given there are no such rounds.

    Horizon 0 brings no evidence; exploration alone finds the way back, so rounds that plan 0 explore `idle_factor`
    times as often. The plan decides that before the coin, so the propensities stay known. With epsilon 0 there is none.

    Args:
        costs: the table to start from, copied; None measures as it goes.
        features: what the hazards may look at.
        soft_labels: evidence with the verifier's coins integrated out (lower variance) instead of accept bits.
        epsilon: probability of drafting the limit.
        idle_factor: multiplies epsilon in rounds that plan horizon 0 (to 1 at most).
        importance_clip: largest inverse-probability weight.
        learning_rate: AdaGrad's step length.
        prior_hazards: for position 1, 2, ...; the last one serves all deeper positions.
        warmup_rounds: rounds decided by the prior hazards.
        measure_every: see above; None never measures on purpose.

    Raises:
        ForerunError: a parameter out of range.

    References:
        AMTP: hazard, survival and G / C; Lemma 1 (survival-weighted loss); exploration and inverse-probability weights.
    """

    def __init__(
        self,
        *,
        costs: CostTable | None = None,
        features: FeatureLevel = FeatureLevel.F2,
        soft_labels: bool = True,
        epsilon: float = 0.02,
        idle_factor: float = 5.0,
        importance_clip: float = 20.0,
        learning_rate: float = 0.2,
        prior_hazards: tuple[float, ...] = (0.2,),
        warmup_rounds: int = 16,
        measure_every: int | None = 4,
    ) -> None:
        if not 0.0 <= epsilon <= 1.0:
            raise ForerunError(f"epsilon is {epsilon}: give a probability")
        if not 1.0 <= idle_factor < inf:
            raise ForerunError(f"idle_factor is {idle_factor}: give a number of at least 1")
        if not importance_clip >= 1.0:
            raise ForerunError(f"importance_clip is {importance_clip}: weights are at least 1")
        if not 0.0 < learning_rate < inf:
            raise ForerunError(f"learning_rate is {learning_rate}: give a number above 0")
        if not prior_hazards or not all(HAZARD_MIN <= hazard <= 1.0 - HAZARD_MIN for hazard in prior_hazards):
            raise ForerunError(
                f"prior_hazards are {prior_hazards}: give at least one, none below {HAZARD_MIN} from 0 or 1"
            )
        if warmup_rounds < 0:
            raise ForerunError(f"warmup_rounds is {warmup_rounds}: give a number of rounds")
        if measure_every is not None and measure_every < 2:
            raise ForerunError(
                f"measure_every is {measure_every}: give None, or at least 2 to draft the limit in between"
            )
        self.costs = costs
        self.features = features
        self.soft_labels = soft_labels
        self.epsilon = epsilon
        self.idle_factor = idle_factor
        self.importance_clip = importance_clip
        self.learning_rate = learning_rate
        self.prior_hazards = prior_hazards
        self.warmup_rounds = warmup_rounds
        self.measure_every = measure_every
        self._costs = CostTable() if costs is None else costs.copy()
        self._history = AcceptanceHistory()
        self._sizes = EffectiveSampleSize()
        self._hazards = LogisticHazards(
            num_features=len(FEATURE_NAMES[features]), prior_hazards=prior_hazards, learning_rate=learning_rate
        )
        self._rounds = 0
        self._explored = 0
        self._invalid_hazards = 0

    @property
    def name(self) -> str:
        """`amtp`."""
        return "amtp"

    @property
    def cost_table(self) -> CostTable:
        """The costs as learned so far (a copy)."""
        return self._costs.copy()

    @property
    def report(self) -> AMTPReport:
        """Counters so far."""
        return AMTPReport(
            rounds=self._rounds,
            explored=self._explored,
            informative=self._history.rounds,
            invalid_hazards=self._invalid_hazards,
            cost_outliers=self._costs.outliers,
            effective_sample_sizes=self._sizes.sizes,
        )

    def hazards(self, context: RoundContext) -> tuple[float, ...]:
        """The learned hazards of positions 1..limit in a context (also during the warm-up)."""
        return tuple(self._hazards.predict(scaled_features(context, self._history, self.features), context.limit))

    def propose(self, context: RoundContext, *, uniform: float) -> Choice:
        """Choose the horizon; O(limit). Nothing is learned here: proposing twice gives the same answer."""
        limit = context.limit
        features = scaled_features(context, self._history, self.features)
        hazards = self._prior(limit) if self._rounds < self.warmup_rounds else self._hazards.predict(features, limit)
        costs = self._costs.seconds(limit)
        if costs[limit] < inf:
            planned, survival, invalid = best_horizon(hazards, costs)
            self._invalid_hazards += invalid
        else:
            planned, survival = limit, tuple(survivals(hazards))
        if self.costs is None and self.measure_every is not None:
            planned = self._measuring(planned, limit, self.measure_every)
        epsilon = self.epsilon if planned > 0 else min(1.0, self.idle_factor * self.epsilon)
        explored = explores(uniform, epsilon)
        return Choice(
            horizon=limit if explored else planned,
            planned=planned,
            explored=explored,
            propensities=propensities(planned, limit, epsilon),
            survival=survival,
            features=features,
        )

    def observe(self, feedback: RoundFeedback) -> None:
        """Learn from a verified round. Uses the features stored in its choice, so rounds may overlap."""
        self._rounds += 1
        self._explored += feedback.choice.explored
        self._costs.observe(feedback.drafted, feedback.seconds)
        items = evidence(feedback, soft=self.soft_labels, importance_clip=self.importance_clip)
        self._hazards.update(feedback.choice.features, items)
        self._sizes.observe(items)
        self._history.observe(feedback, items)

    def clone(self) -> AMTP:
        """The same parameters, including the cost table given at the start; nothing learned."""
        return AMTP(
            costs=self.costs,
            features=self.features,
            soft_labels=self.soft_labels,
            epsilon=self.epsilon,
            idle_factor=self.idle_factor,
            importance_clip=self.importance_clip,
            learning_rate=self.learning_rate,
            prior_hazards=self.prior_hazards,
            warmup_rounds=self.warmup_rounds,
            measure_every=self.measure_every,
        )

    def state_dict(self) -> dict[str, object]:
        """Everything learned, costs included, as plain data that survives JSON; parameters are not part of it."""
        return {
            "format": FORMAT,
            "feature_names": list(FEATURE_NAMES[self.features]),
            "rounds": self._rounds,
            "explored": self._explored,
            "invalid_hazards": self._invalid_hazards,
            "hazards": self._hazards.state_dict(),
            "history": self._history.state_dict(),
            "effective_sample_sizes": self._sizes.state_dict(),
            "costs": self._costs.state_dict(),
        }

    def load_state_dict(self, data: object) -> None:
        """Continue from a saved state; the policy then behaves as the saved one would have.

        Raises:
            ForerunError: a key is missing, unknown or of the wrong kind, or the state has other features. The policy is
                then unchanged.
        """
        fresh = self.clone()
        state = check_keys(data, tuple(fresh.state_dict()), "AMTP state")
        if state["format"] != FORMAT:
            raise ForerunError(f"AMTP state: format is {state['format']!r}, this version reads {FORMAT!r}")
        names = list(FEATURE_NAMES[self.features])
        if state["feature_names"] != names:
            raise ForerunError(f"AMTP state: learned with features {state['feature_names']}, this policy has {names}")
        fresh._hazards.load_state_dict(state["hazards"])
        fresh._history.load_state_dict(state["history"])
        fresh._sizes.load_state_dict(state["effective_sample_sizes"])
        costs = CostTable.from_state_dict(state["costs"])
        rounds = read_int(state["rounds"], "rounds")
        explored = read_int(state["explored"], "explored")
        invalid = read_int(state["invalid_hazards"], "invalid_hazards")
        self._hazards, self._history, self._sizes, self._costs = fresh._hazards, fresh._history, fresh._sizes, costs
        self._rounds, self._explored, self._invalid_hazards = rounds, explored, invalid

    def _prior(self, limit: int) -> list[float]:
        deeper = max(0, limit - len(self.prior_hazards))
        return [*self.prior_hazards[:limit], *[self.prior_hazards[-1]] * deeper]

    def _measuring(self, planned: int, limit: int, every: int) -> int:
        if self._rounds % every == every - 1:
            for horizon in MEASURED_HORIZONS:
                if horizon < limit and horizon not in self._costs.measured:
                    return horizon
        return planned
