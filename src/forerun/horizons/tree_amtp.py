"""AMTP for drafters of trees: depth and width of each round's tree, before drafting.

    pre-draft features -> hazards by depth and width -> expected tokens of every shape -> argmax of tokens / seconds

It knows numbers about rounds and nothing about tokens, laws or models.
"""

from __future__ import annotations

from math import inf, log2
from typing import final

import numpy as np

from forerun.errors import ForerunError
from forerun.horizons.context import Choice, RoundContext, RoundFeedback
from forerun.horizons.cost_surface import CostSurface
from forerun.horizons.evidence import evidence
from forerun.horizons.exploration import propensities
from forerun.horizons.features import FEATURE_NAMES, SIGNALS, FeatureLevel, scaled_features
from forerun.horizons.hazards import LogisticHazards
from forerun.horizons.history import AcceptanceHistory
from forerun.horizons.learner import HAZARD_MIN, kind_of_state
from forerun.horizons.plain import check_keys, check_same, read_int
from forerun.horizons.policy import HorizonPolicy
from forerun.horizons.signals import Signal
from forerun.horizons.tree_shape import best_shape, doubled_chain

FORMAT = "forerun-tree-amtp/1"
WIDTH_SLOPE = -0.5
"""Change of a hazard's log-odds for twice as many siblings before anything was learned: of a token that stands with 0.6
a second candidate then rescues a sixth of the failures."""
MEASURING_ROUNDS = 9
"""Without costs given: three rounds each of no draft, a chain, and a tree of two children a node."""


@final
class TreeAMTP(HorizonPolicy):
    """Adaptive trees: AMTP's hazards, with the width of each depth, under a budget of nodes.

    The hazard of depth j is the probability that none of the w siblings offered there stands, given that the path
    reached depth j - 1:

        h_j(w) = sigmoid(bias_j + <slopes, features> + width_slope * log2(w)),

    so that odds of failing fall by one factor whenever siblings double, at every depth; the factor is learned with the
    rest, by the same log loss and AdaGrad as `Logistic`. `best_shape` then prices every branching of at most
    `max_nodes` nodes.

    A tree teaches about the depths that its path reached, with the number of siblings that were offered there, and
    about no others: a depth's evidence has weight 1 where it was tried. How good a depth is may depend on how wide the
    depths above were (a second-best parent has worse children); that is averaged over and not modelled.

    Exploration: with probability `epsilon / 2` a chain of the full depth is drafted, and with `epsilon / 2` a tree of
    the full depth that doubles from the top. So every depth has a known propensity, and each is seen with one sibling
    and, as far as the budget goes, with two.

    Args:
        max_nodes: budget, at least 1.
        max_children: of a node.
        costs: to start from, copied; None measures as it goes, beginning with 9 rounds that are there for it.
        learning_rate: AdaGrad's step length.
        features: what the hazards may look at; F4 is for chains.
        soft_labels: evidence with the last sibling's draw and the verifier's coins integrated out.
        epsilon: probability of an explored shape.
        importance_clip: largest inverse-probability weight.
        prior_hazards: of one candidate at depth 1, 2, ...; the last one serves all deeper ones.
        warmup_rounds: rounds decided by the prior.

    Raises:
        ForerunError: a parameter out of range.

    References:
        AMTP, which names width and depth of trees as future work.
    """

    def __init__(
        self,
        *,
        max_nodes: int,
        max_children: int = 8,
        costs: CostSurface | None = None,
        learning_rate: float = 0.2,
        features: FeatureLevel = FeatureLevel.F2,
        soft_labels: bool = True,
        epsilon: float = 0.04,
        importance_clip: float = 20.0,
        prior_hazards: tuple[float, ...] = (0.3,),
        warmup_rounds: int = 16,
    ) -> None:
        if max_nodes < 1 or max_children < 1:
            raise ForerunError(f"max_nodes is {max_nodes} and max_children {max_children}: give at least 1 of each")
        if features is FeatureLevel.F4:
            raise ForerunError("features F4 look at the laws of a block, which a tree has not; choose F3 or below")
        if not (0.0 <= epsilon <= 1.0 and importance_clip >= 1.0 and learning_rate > 0.0 and warmup_rounds >= 0):
            raise ForerunError("give a probability epsilon, weights and a learning rate above 0, rounds from 0 on")
        if not prior_hazards or not all(HAZARD_MIN <= hazard <= 1.0 - HAZARD_MIN for hazard in prior_hazards):
            raise ForerunError(f"prior_hazards are {prior_hazards}: give some, each {HAZARD_MIN} from 0 and 1 or more")
        self.max_nodes, self.max_children = max_nodes, max_children
        self.costs = costs
        self.learning_rate = learning_rate
        self.features = features
        self.soft_labels = soft_labels
        self.epsilon = epsilon
        self.importance_clip = importance_clip
        self.prior_hazards = prior_hazards
        self.warmup_rounds = warmup_rounds
        self._costs = CostSurface() if costs is None else costs.copy()
        self._prior, self._hazards = self._new_hazards(), self._new_hazards()
        self._history = AcceptanceHistory()
        self._rounds = 0

    @property
    def name(self) -> str:
        """`tree-amtp` and the budget."""
        return f"tree-amtp-{self.max_nodes}"

    @property
    def wants(self) -> frozenset[Signal]:
        """What the feature level looks at."""
        return SIGNALS[self.features]

    @property
    def shapes_trees(self) -> bool:
        """Yes."""
        return True

    @property
    def width_slope(self) -> float:
        """Change of a hazard's log-odds for twice as many siblings, as learned so far."""
        return self._hazards.slopes[-1]

    def propose(self, context: RoundContext, *, uniform: float) -> Choice:
        """Choose the shape. Nothing is learned here: proposing twice gives the same answer."""
        if not 0.0 <= uniform < 1.0:
            raise ForerunError(f"uniform is {uniform}: give one draw from [0, 1)")
        limit = min(context.limit, self.max_nodes)
        features = scaled_features(context, self._history, self.features)
        accepts = self._accepts(features, limit)
        planned = self._planned(accepts, limit, context)
        explored = uniform < self.epsilon
        drawn = planned if not explored else self._chain(limit) if uniform < self.epsilon / 2 else self._wide(limit)
        offered = (*drawn, *(1,) * (limit - len(drawn)))
        reached = np.cumprod(accepts[np.arange(limit), np.array(offered, dtype=np.int64)])
        beyond = (0.0,) * (context.limit - limit)
        return Choice(
            horizon=len(drawn),
            planned=len(planned),
            explored=explored,
            propensities=(*propensities(len(planned), limit, self.epsilon), *beyond),
            survival=(*reached.tolist(), *beyond),
            features=features,
            branching=drawn,
        )

    def observe(self, feedback: RoundFeedback) -> None:
        """Learn from a verified round: its cost, and the depths that were tried, at the widths that were offered."""
        branching = feedback.choice.branching
        assert branching is not None, "a round of another policy"
        self._rounds += 1
        self._costs.observe_round(feedback)
        items = evidence(feedback, soft=self.soft_labels, importance_clip=self.importance_clip)
        self._history.observe(feedback, items)
        widths = map(log2, branching[: len(items.weights)])
        self._hazards.update((*feedback.choice.features, *widths), items)

    def clone(self) -> TreeAMTP:
        """The same parameters, the costs given at the start included; nothing learned."""
        return TreeAMTP(
            max_nodes=self.max_nodes,
            max_children=self.max_children,
            costs=self.costs,
            learning_rate=self.learning_rate,
            features=self.features,
            soft_labels=self.soft_labels,
            epsilon=self.epsilon,
            importance_clip=self.importance_clip,
            prior_hazards=self.prior_hazards,
            warmup_rounds=self.warmup_rounds,
        )

    def state_dict(self) -> dict[str, object]:
        """Everything learned, costs included, as plain data that survives JSON."""
        return {
            **kind_of_state(FORMAT, self.features),
            "rounds": self._rounds,
            "hazards": self._hazards.state_dict(),
            "history": self._history.state_dict(),
            "costs": self._costs.state_dict(),
        }

    def load_state_dict(self, data: object) -> None:
        """Continue from a saved state; the policy then behaves as the saved one would have.

        Raises:
            ForerunError: the state is none of such a policy. The policy is then unchanged.
        """
        state = check_keys(data, tuple(self.state_dict()), "tree AMTP state")
        check_same(state, kind_of_state(FORMAT, self.features), "tree AMTP state")
        hazards, history = self._new_hazards(), AcceptanceHistory()
        hazards.load_state_dict(state["hazards"])
        history.load_state_dict(state["history"])
        costs, rounds = CostSurface.from_state_dict(state["costs"]), read_int(state["rounds"], "rounds")
        self._hazards, self._history, self._costs, self._rounds = hazards, history, costs, rounds

    def _new_hazards(self) -> LogisticHazards:
        return LogisticHazards(
            num_features=len(FEATURE_NAMES[self.features]),
            prior_hazards=self.prior_hazards,
            learning_rate=self.learning_rate,
            position_feature=True,
            position_slope=WIDTH_SLOPE,
        )

    def _accepts(self, features: tuple[float, ...], limit: int) -> np.ndarray:
        """P(one of w siblings at depth j stands | depth j - 1 does): (limit, max_children + 1)."""
        hazards = self._prior if self._rounds < self.warmup_rounds else self._hazards
        accepts = np.zeros((limit, self.max_children + 1))
        for width in range(1, self.max_children + 1):
            accepts[:, width] = hazards.predict((*features, *(log2(width),) * limit), limit)
        accepts[:, 1:] = 1.0 - accepts[:, 1:]
        return accepts

    def _planned(self, accepts: np.ndarray, limit: int, context: RoundContext) -> tuple[int, ...]:
        if self.costs is None and self._rounds < MEASURING_ROUNDS:
            return ((), self._chain(limit), self._wide(limit))[self._rounds % 3]
        batch = context.batch_size
        passes = self._costs.verify_seconds(batch * (self.max_nodes + 1), context.context_length, batch)[batch::batch]
        verify = (passes + self._costs.rest_seconds).tolist()
        if verify[0] == inf:
            return ()  # what plain decoding costs was not measured often enough
        return best_shape(accepts, verify, draft_seconds=self._costs.draft_seconds(limit)).branching

    def _chain(self, limit: int) -> tuple[int, ...]:
        return (1,) * limit

    def _wide(self, limit: int) -> tuple[int, ...]:
        return doubled_chain(limit, self.max_nodes) if self.max_children > 1 else self._chain(limit)
