"""DSpark's and vLLM's scheduler for one request: calibrated confidences of the drafts decide how many are verified."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import exp, inf, log
from typing import final

import numpy as np

from forerun.errors import ForerunError
from forerun.horizons.context import RoundContext, RoundFeedback
from forerun.horizons.cost import CostTable
from forerun.horizons.cost_model import CostModel
from forerun.horizons.rivals.admission import best_total, early_break
from forerun.horizons.rivals.deterministic import DeterministicPolicy, round_seconds
from forerun.horizons.rivals.logistic import fit_logistic
from forerun.horizons.rivals.stop_rules import NeverStop
from forerun.horizons.stop import DraftStatistics, DrawnToken, StopRule

INITIAL = (1.5, 0.0)
RIDGE = 1e-3
REFIT_EVERY = 100
OBSERVATIONS_NEEDED = 50
OBSERVATIONS_KEPT = 500
LARGEST_LOGIT = 12.0


class Search(Enum):
    """How far the scheduler looks."""

    EARLY_BREAK = "early-break"
    """Token by token, until the throughput would fall: exact."""
    STALE_BUDGET = "stale-budget"
    """A budget from the confidences of the round before the last: exact."""
    SAME_ROUND = "same-round"
    """All of this round's confidences, after drawing: the negative control, not exact."""


@final
@dataclass(frozen=True, slots=True)
class Calibration:
    """P(a draft stands, given that those before it do) = sigmoid(bias + slope * x), with its own pair for each place.

    x is the log-odds of the drafter's confidence, or without one the top-2 margin of log-probabilities. Both are known
    before the token is drawn.

    Attributes:
        pairs: bias and slope for place 1, 2, ...; the last one serves all deeper places.
    """

    pairs: tuple[tuple[float, float], ...]

    def survivals(self, laws: Sequence[DraftStatistics]) -> list[float]:
        """Of the prefixes of a draft."""
        curve, standing = [], 1.0
        for place, law in enumerate(laws):
            bias, slope = self.pairs[min(place, len(self.pairs) - 1)]
            standing /= 1.0 + exp(-(bias + slope * evidence_of(law)))
            curve.append(standing)
        return curve


@final
@dataclass(frozen=True, slots=True)
class ThroughputStop(StopRule):
    """Draw while the expected throughput does not fall; the first token always, or nothing more would be learned.

    Attributes:
        calibration: of confidences.
        seconds: C(0), ..., C(limit).
    """

    calibration: Calibration
    seconds: tuple[float, ...]

    def draws(self, drawn: Sequence[DrawnToken], law: DraftStatistics) -> bool:
        """The break of DSpark's algorithm 1."""
        if not drawn:
            return True
        curve = self.calibration.survivals([*(token.law for token in drawn), law])
        return early_break([curve], self.seconds) == [len(curve)]

    def continues(self, drawn: Sequence[DrawnToken]) -> bool:
        """The next law decides."""
        return True


@final
@dataclass(frozen=True, slots=True)
class SameRoundSearch(StopRule):
    """Negative control: draw everything, then submit the prefix with the largest expected throughput.

    Attributes:
        calibration: of confidences.
        seconds: C(0), ..., C(limit).
    """

    calibration: Calibration
    seconds: tuple[float, ...]

    @property
    def exact(self) -> bool:
        """A confidence behind token j, which looks at token j, decides about token j."""
        return False

    def draws(self, drawn: Sequence[DrawnToken], law: DraftStatistics) -> bool:
        """Always."""
        return True

    def continues(self, drawn: Sequence[DrawnToken]) -> bool:
        """Always."""
        return True

    def submits(self, drawn: Sequence[DrawnToken]) -> int:
        """Over all prefixes."""
        return best_total([self.calibration.survivals([token.law for token in drawn])], self.seconds)[0]


@final
class CalibratedScheduler(DeterministicPolicy):
    """Calibrated survivals of the drafts against a cost table.

    The calibration is re-fitted every 100 rounds by logistic regression over the last 500 judged tokens of a place (50
    at least; ridge 1e-3 towards bias 1.5, slope 0). The rounds before the third fit draft and verify everything, and so
    does every round while the cost of the limit is unknown: without a table nothing is trimmed.

    Args:
        search: see ``Search``.
        costs: copied; None measures as it goes.
        warmup_fits: fits before the first decision.
        calibration: of the drafter, from an earlier run; there is no warm-up then, and no fitting.

    Raises:
        ForerunError: a negative number of fits.

    References:
        DSpark, arXiv 2607.05147, algorithm 1 and section 5.2; vLLM's adaptive verification (pull request 47808) for the
        online calibration. DSpark calibrates offline by sequential temperature scaling.
    """

    def __init__(
        self,
        *,
        search: Search = Search.EARLY_BREAK,
        costs: CostModel | None = None,
        warmup_fits: int = 3,
        calibration: Calibration | None = None,
    ) -> None:
        if warmup_fits < 0:
            raise ForerunError(f"warmup_fits is {warmup_fits}: give a number of fits")
        self.search = search
        self.costs = costs
        self.warmup_fits = warmup_fits
        self.calibration = calibration
        self._calibration = Calibration((INITIAL,)) if calibration is None else calibration
        self._costs = CostTable() if costs is None else costs.copy()
        self._judged: list[deque[tuple[float, bool]]] = []
        self._curves: deque[list[float]] = deque(maxlen=2)
        self._rounds = 0

    @property
    def name(self) -> str:
        """`dspark-` and the search."""
        return f"dspark-{self.search.value}"

    @property
    def exact(self) -> bool:
        """Not with this round's confidences."""
        return self.search is not Search.SAME_ROUND

    def horizon_for(self, context: RoundContext) -> int:
        """The limit, or the budget."""
        limit = context.limit
        seconds = self._known_seconds(context)
        if self.search is not Search.STALE_BUDGET or seconds is None or len(self._curves) < 2:
            return limit
        curve = list(self._curves[0][:limit])
        while curve and len(curve) < limit:  # what was not drawn then goes on falling as it last did
            curve.append(curve[-1] * (curve[-1] / curve[-2] if len(curve) > 1 else curve[-1]))
        return best_total([curve], seconds)[0] or min(1, limit)  # nothing drawn would leave no confidence behind

    ends_drafts = True

    def stop_for(self, context: RoundContext) -> StopRule:
        """By the search; everything is drawn during the warm-up."""
        seconds = self._known_seconds(context)
        if seconds is None or self.search is Search.STALE_BUDGET:
            return NeverStop()
        if self.search is Search.SAME_ROUND:
            return SameRoundSearch(self._calibration, seconds)
        return ThroughputStop(self._calibration, seconds)

    def observe(self, feedback: RoundFeedback) -> None:
        """Judged tokens, costs, and at times a fit."""
        self._rounds += 1
        self._costs.observe_round(feedback)
        if feedback.drawn:
            self._curves.append(self._calibration.survivals([token.law for token in feedback.drawn]))
        if self.calibration is not None:
            return
        for place, token in enumerate(feedback.drawn[: min(feedback.accepted + 1, feedback.counted)]):
            if place == len(self._judged):
                self._judged.append(deque(maxlen=OBSERVATIONS_KEPT))
            self._judged[place].append((evidence_of(token.law), place < feedback.accepted))
        if self._rounds % REFIT_EVERY == 0:
            self._calibration = Calibration(tuple(map(_fitted, self._judged)) or (INITIAL,))

    def clone(self) -> CalibratedScheduler:
        """Without judged tokens, with the costs and the calibration given at the start."""
        return CalibratedScheduler(
            search=self.search, costs=self.costs, warmup_fits=self.warmup_fits, calibration=self.calibration
        )

    def _known_seconds(self, context: RoundContext) -> tuple[float, ...] | None:
        """Of all horizons, once there is a calibration and the table reaches the limit."""
        if self.calibration is None and self._rounds < self.warmup_fits * REFIT_EVERY:
            return None
        seconds = round_seconds(self._costs, context)
        return seconds if seconds[-1] < inf else None


def evidence_of(law: DraftStatistics) -> float:
    """The number x of ``Calibration``, within 12 of 0."""
    if law.confidence is not None:
        over, under = law.confidence, 1.0 - law.confidence
    else:
        over, under = law.top_prob, law.top_prob - law.margin
    if under <= 0.0 or over <= 0.0:
        return LARGEST_LOGIT if over > under else -LARGEST_LOGIT
    return min(max(log(over / under), -LARGEST_LOGIT), LARGEST_LOGIT)


def _fitted(judged: Sequence[tuple[float, bool]]) -> tuple[float, float]:
    if len(judged) < OBSERVATIONS_NEEDED:
        return INITIAL
    rows = np.array([(1.0, number) for number, _ in judged])
    labels = np.array([float(stood) for _, stood in judged])
    bias, slope = fit_logistic(rows, labels, np.ones(len(judged)), ridge=RIDGE, start=np.array(INITIAL)).tolist()
    return bias, slope
