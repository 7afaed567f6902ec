"""AMTP: choose each round's horizon before drafting, from learned rejection hazards and measured round costs.

    pre-draft features -> hazards -> survivals -> expected tokens G(k) -> argmax of G(k) / C(k)

It knows numbers about rounds and nothing about tokens, laws or models. What the paper leaves open (features, learning
rate, exploration rate, labels, cost estimator, start) is chosen here and documented at the parameters.
"""

from __future__ import annotations

from math import inf
from typing import final

from forerun.errors import ForerunError
from forerun.horizons.amtp_report import AMTPReport
from forerun.horizons.context import Choice, RoundContext, RoundFeedback
from forerun.horizons.cost import CostTable
from forerun.horizons.cost_model import CostModel
from forerun.horizons.evidence import evidence
from forerun.horizons.exploration import (
    EffectiveSampleSize,
    Schedule,
    explored_horizon,
    padded_horizon,
    propensities,
)
from forerun.horizons.features import SIGNALS, FeatureLevel, num_shared, scaled_features
from forerun.horizons.hazards import Logistic
from forerun.horizons.history import AcceptanceHistory
from forerun.horizons.learner import HAZARD_MIN, Learner, kind_of_state
from forerun.horizons.objective import Ablation, LongRunRate, Objective
from forerun.horizons.plain import check_keys, check_same, read_int
from forerun.horizons.policy import HorizonPolicy
from forerun.horizons.signals import Signal
from forerun.horizons.survival import best_horizon, survivals

FORMAT = "forerun-amtp/2"
MEASURED_HORIZONS = (0, 1)
"""What an AMTP without a table measures besides the limit: plain decoding, and the fixed part of drafting at all."""


IDLE_UNTIL = 64
"""Informative rounds after which a plan of horizon 0 is knowledge and no longer an accident of the start."""


@final
class AMTP(HorizonPolicy):
    """Adaptive horizons by survival-weighted hazard regression (AMTP).

    Each round: features from the context and the history; hazards from the learner; the smallest maximiser of the
    objective over k = 0..limit; then, with probability `epsilon`, the limit instead. After the round, one step of the
    learner on survival-weighted evidence with inverse-probability weights, the history, and the round's cost.

    Practice mode is the default: logistic hazards, log loss, AdaGrad, soft labels. `learner=Linear(...)` with
    `soft_labels=False, warmup_rounds=0, importance_clip=inf, idle_factor=1` is the mode that the regret analysis is
    about; `theory_rates` gives its rates.

    Start: in the first `warmup_rounds` rounds the prior hazards decide and the learner only learns, so that a few
    unlucky rounds do not switch drafting off. The default prior is optimistic: it drafts and so finds out.

    Without a cost table nothing is trimmed: the limit is drafted as long as its cost is unknown, and afterwards as long
    as no smaller horizon's cost is known. So that this ends, every `measure_every`-th round drafts 0, then 1 token
    until both are measured (a decision by past rounds alone, hence exact). With a table given there are no such rounds.

    Horizon 0 brings no evidence; exploration alone finds the way back, so rounds that plan 0 explore `idle_factor`
    times as often until 64 rounds have been informative. The plan and past rounds decide that before the coin, so the
    propensities stay known. With epsilon 0 there is none.

    Args:
        costs: the model to start from, copied; None is an empty `CostTable` that measures as it goes.
        learn_costs: keep the costs up to date; False leaves them as they were given.
        learner: settings of the hazard model: `Logistic`, `Linear`, or `DirectSurvival` (an ablation).
        objective: what a round maximises, G / C or G - lambda C.
        features: what the hazards may look at.
        soft_labels: evidence with the verifier's coins integrated out (lower variance) instead of accept bits.
        epsilon: probability of drafting the limit.
        schedule: whether that falls with time.
        pad_widths: widths in tokens that verification passes are padded to. Slots that a padded pass has anyway are
            then filled with probability `pad_rate`: exploration at no cost for a drafter whose block costs the same
            whatever its length. The propensities say so.
        pad_rate: see above; the coin is the same one.
        idle_factor: multiplies epsilon in early rounds that plan horizon 0 (to 1 at most).
        importance_clip: largest inverse-probability weight.
        prior_hazards: for position 1, 2, ...; the last one serves all deeper positions.
        warmup_rounds: rounds decided by the prior hazards.
        measure_every: see above; None never measures on purpose.
        ablation: leave something out, to show what it is for; None leaves out nothing.

    Raises:
        ForerunError: a parameter out of range.

    References:
        AMTP: hazard, survival and G / C; Lemma 1 (survival-weighted loss); exploration and inverse-probability weights.
    """

    def __init__(
        self,
        *,
        costs: CostModel | None = None,
        learn_costs: bool = True,
        learner: Learner | None = None,
        objective: Objective = Objective.RATIO,
        features: FeatureLevel = FeatureLevel.F2,
        soft_labels: bool = True,
        epsilon: float = 0.02,
        schedule: Schedule = Schedule.CONSTANT,
        pad_widths: tuple[int, ...] = (),
        pad_rate: float = 1.0,
        idle_factor: float = 5.0,
        importance_clip: float = 20.0,
        prior_hazards: tuple[float, ...] = (0.2,),
        warmup_rounds: int = 16,
        measure_every: int | None = 4,
        ablation: Ablation | None = None,
    ) -> None:
        for name, value in (("epsilon", epsilon), ("pad_rate", pad_rate)):
            if not 0.0 <= value <= 1.0:
                raise ForerunError(f"{name} is {value}: give a probability")
        if list(pad_widths) != sorted(set(pad_widths)) or (pad_widths and pad_widths[0] < 1):
            raise ForerunError(f"pad_widths are {pad_widths}: give rising numbers of tokens, from 1")
        if not 1.0 <= idle_factor < inf:
            raise ForerunError(f"idle_factor is {idle_factor}: give a number of at least 1")
        if not importance_clip >= 1.0:
            raise ForerunError(f"importance_clip is {importance_clip}: weights are at least 1")
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
        if ablation is Ablation.UNWEIGHTED_LOSS and not soft_labels:
            raise ForerunError("the unweighted loss needs soft labels: no accept bit exists behind a rejection")
        self.costs = costs
        self.learn_costs = learn_costs
        self.learner = Logistic() if learner is None else learner
        self.objective = objective
        self.features = features
        self.soft_labels = soft_labels
        self.epsilon = epsilon
        self.schedule = schedule
        self.pad_widths = pad_widths
        self.pad_rate = pad_rate if pad_widths else 0.0
        self.idle_factor = idle_factor
        self.importance_clip = importance_clip
        self.prior_hazards = prior_hazards
        self.warmup_rounds = warmup_rounds
        self.measure_every = measure_every
        self.ablation = ablation
        self._costs: CostModel = CostTable() if costs is None else costs.copy()
        self._history = AcceptanceHistory()
        self._sizes = EffectiveSampleSize()
        self._rate = LongRunRate()
        self._hazards = self.learner.start(
            num_features=num_shared(features),
            position_feature=features is FeatureLevel.F4,
            prior_hazards=prior_hazards,
        )
        self._rounds = 0
        self._explored = 0
        self._disagreed = 0
        self._invalid_hazards = 0

    @property
    def name(self) -> str:
        """`amtp`."""
        return "amtp"

    @property
    def wants(self) -> frozenset[Signal]:
        """What the feature level looks at."""
        return SIGNALS[self.features]

    @property
    def cost_table(self) -> CostModel:
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
            tokens_per_second=self._rate.value,
            disagreed=self._disagreed,
        )

    def hazards(self, context: RoundContext) -> tuple[float, ...]:
        """The learned hazards of positions 1..limit in a context (also during the warm-up)."""
        return tuple(self._hazards.predict(scaled_features(context, self._history, self.features), context.limit))

    def propose(self, context: RoundContext, *, uniform: float) -> Choice:
        """Choose the horizon; O(limit). Nothing is learned here: proposing twice gives the same answer."""
        limit = context.limit
        features = scaled_features(context, self._history, self.features)
        hazards = self._prior(limit) if self._rounds < self.warmup_rounds else self._hazards.predict(features, limit)
        costs = self._costs.seconds(
            limit,
            context_length=context.context_length,
            batch_size=context.batch_size,
            drafted=context.draft_margins is not None,
        )
        ratio = renewal = None
        if costs[limit] < inf:
            ratio, survival, invalid, renewal = best_horizon(hazards, costs, rate=self._rate.value_or(hazards, costs))
            self._invalid_hazards += invalid
            planned = ratio if self.objective is Objective.RATIO else renewal
        else:
            planned, survival = limit, tuple(survivals(hazards))
        if self.costs is None and self.measure_every is not None:
            planned = self._measuring(planned, limit, self.measure_every)
        epsilon = self.schedule.rate(self.epsilon, self._rounds)
        if planned == 0 and self._history.rounds < IDLE_UNTIL:
            epsilon = min(1.0, self.idle_factor * epsilon)
        padded = padded_horizon(planned, limit, self.pad_widths) if self.pad_rate else planned
        horizon = explored_horizon(planned, limit, uniform, epsilon=epsilon, padded=padded, pad_rate=self.pad_rate)
        return Choice(
            horizon=horizon,
            planned=planned,
            explored=uniform < epsilon or horizon > planned,
            propensities=propensities(planned, limit, epsilon, padded=padded, pad_rate=self.pad_rate),
            survival=survival,
            features=features,
            ratio_horizon=ratio,
            renewal_horizon=renewal,
        )

    def observe(self, feedback: RoundFeedback) -> None:
        """Learn from a verified round. Uses the features stored in its choice, so rounds may overlap."""
        choice = feedback.choice
        self._rounds += 1
        self._explored += choice.explored
        self._disagreed += choice.ratio_horizon != choice.renewal_horizon
        if self.learn_costs:
            self._costs.observe_round(feedback)
        self._rate.observe(feedback.emitted, feedback.seconds)
        items = evidence(feedback, soft=self.soft_labels, importance_clip=self.importance_clip)
        self._sizes.observe(items)
        self._history.observe(feedback, items)
        if self._hazards.own_evidence or self.ablation is not None:
            items = self._hazards.evidence(
                feedback,
                soft=self.soft_labels,
                importance_clip=self.importance_clip,
                survival_weighted=self.ablation is not Ablation.UNWEIGHTED_LOSS,
                inverse_propensity=self.ablation is not Ablation.NAIVE_POOLING,
            )
        self._hazards.update(choice.features, items)

    def clone(self) -> AMTP:
        """The same parameters, including the cost table given at the start; nothing learned."""
        return AMTP(
            costs=self.costs,
            learn_costs=self.learn_costs,
            learner=self.learner,
            objective=self.objective,
            features=self.features,
            soft_labels=self.soft_labels,
            epsilon=self.epsilon,
            schedule=self.schedule,
            pad_widths=self.pad_widths,
            pad_rate=self.pad_rate,
            idle_factor=self.idle_factor,
            importance_clip=self.importance_clip,
            prior_hazards=self.prior_hazards,
            warmup_rounds=self.warmup_rounds,
            measure_every=self.measure_every,
            ablation=self.ablation,
        )

    def state_dict(self) -> dict[str, object]:
        """Everything learned, costs included, as plain data that survives JSON; parameters are not part of it."""
        return {
            **kind_of_state(FORMAT, self.features, self.learner),
            "rounds": self._rounds,
            "explored": self._explored,
            "disagreed": self._disagreed,
            "invalid_hazards": self._invalid_hazards,
            "hazards": self._hazards.state_dict(),
            "history": self._history.state_dict(),
            "effective_sample_sizes": self._sizes.state_dict(),
            "long_run_rate": self._rate.state_dict(),
            "costs": self._costs.state_dict(),
        }

    def load_state_dict(self, data: object) -> None:
        """Continue from a saved state; the policy then behaves as the saved one would have.

        Raises:
            ForerunError: a key is missing, unknown or of the wrong kind, or the state has other features or another
                learner. The policy is then unchanged.
        """
        fresh = self.clone()
        state = check_keys(data, tuple(fresh.state_dict()), "AMTP state")
        check_same(state, kind_of_state(FORMAT, self.features, self.learner), "AMTP state")
        fresh._hazards.load_state_dict(state["hazards"])
        fresh._history.load_state_dict(state["history"])
        fresh._sizes.load_state_dict(state["effective_sample_sizes"])
        fresh._rate.load_state_dict(state["long_run_rate"])
        costs = type(self._costs).from_state_dict(state["costs"])
        counters = [read_int(state[key], key) for key in ("rounds", "explored", "disagreed", "invalid_hazards")]
        self._hazards, self._history, self._sizes, self._costs = fresh._hazards, fresh._history, fresh._sizes, costs
        self._rate = fresh._rate
        self._rounds, self._explored, self._disagreed, self._invalid_hazards = counters

    def _prior(self, limit: int) -> list[float]:
        deeper = max(0, limit - len(self.prior_hazards))
        return [*self.prior_hazards[:limit], *[self.prior_hazards[-1]] * deeper]

    def _measuring(self, planned: int, limit: int, every: int) -> int:
        if self._rounds % every == every - 1:
            for horizon in MEASURED_HORIZONS:
                if horizon < limit and horizon not in self._costs.measured:
                    return horizon
        return planned
