"""Survival times cost without features: AMTP's decision from past acceptance alone, as serving engines have it.

This is the ablation that decides whether features matter.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import final

from forerun.errors import ForerunError
from forerun.horizons.context import Choice, RoundContext, RoundFeedback
from forerun.horizons.cost import CostTable
from forerun.horizons.cost_model import CostModel
from forerun.horizons.policy import HorizonPolicy
from forerun.horizons.rivals.deterministic import check_uniform, round_seconds
from forerun.horizons.signals import Signal
from forerun.horizons.survival import gains, survivals


@final
class WindowedSurvival(HorizonPolicy):
    """argmax of G(k) / C(k) with hazards h_j = rejections / trials of position j in its last trials.

    Position j is tried when it was drafted and all drafts before it stood; positions cut off by the answer's end were
    not tried. A position that was never tried has the hazard of the one before it (survival goes on geometrically), the
    first one `prior_hazard`.

    Where the cost of the limit or of one token is unknown, the limit is drafted (nothing is trimmed on a guess), and in
    every fourth round one token, so that the table fills. A new horizon replaces the old one only if its rate is better
    by the hysteresis. With epsilon 0 the floor is 1: nothing is ever learned at horizon 0.

    Args:
        costs: copied; None measures as it goes.
        window: trials of a position that count; None takes a running mean with `alpha` instead.
        alpha: rate of the running mean.
        decide_every: rounds from decision to decision.
        hysteresis: share by which a new horizon must be better.
        epsilon: probability of drafting the limit.
        floor: smallest horizon; None is 1 without exploration and 0 with it.
        prior_hazard: of position 1 before its first trial.

    Raises:
        ForerunError: a parameter out of range.

    References:
        SGLang pull request 28045 (window 20, decided every 10 rounds, hysteresis 10 %, no exploration); vLLM pull
        requests 44336 and 47111 (running means, epsilon 0.1); adaptive_k of vLLM's DFlash.
    """

    def __init__(
        self,
        *,
        costs: CostModel | None = None,
        window: int | None = 20,
        alpha: float = 0.05,
        decide_every: int = 1,
        hysteresis: float = 0.0,
        epsilon: float = 0.0,
        floor: int | None = None,
        prior_hazard: float = 0.2,
    ) -> None:
        if (window is not None and window < 1) or not 0.0 < alpha <= 1.0 or decide_every < 1 or hysteresis < 0.0:
            raise ForerunError(
                "windowed survival needs window >= 1, 0 < alpha <= 1, decide_every >= 1 and hysteresis >= 0, got "
                f"{window}, {alpha}, {decide_every} and {hysteresis}"
            )
        if not (0.0 <= epsilon <= 1.0 and 0.0 <= prior_hazard <= 1.0 and (floor is None or floor >= 0)):
            raise ForerunError(
                "windowed survival needs epsilon and prior_hazard in [0, 1] and a floor of 0 or more, got "
                f"{epsilon}, {prior_hazard} and {floor}"
            )
        self.costs = costs
        self.window = window
        self.alpha = alpha
        self.decide_every = decide_every
        self.hysteresis = hysteresis
        self.epsilon = epsilon
        self.floor = floor
        self.prior_hazard = prior_hazard
        self._costs = CostTable() if costs is None else costs.copy()
        self._trials: list[deque[bool]] = []
        self._means: list[float] = []
        self._rounds = 0
        self._held: int | None = None

    @property
    def name(self) -> str:
        """`windowed-survival` with what departs from the plain form."""
        return (
            "windowed-survival"
            + ("-ewma" if self.window is None else "")
            + (f"-every-{self.decide_every}" if self.decide_every > 1 else "")
            + ("-hysteresis" if self.hysteresis > 0.0 else "")
            + ("-eps" if self.epsilon > 0.0 else "")
        )

    @property
    def wants(self) -> frozenset[Signal]:
        """Nothing."""
        return frozenset()

    def propose(self, context: RoundContext, *, uniform: float) -> Choice:
        """The best horizon, or the held one; the limit where the coin says so."""
        check_uniform(uniform)
        limit = context.limit
        curve = tuple(survivals(self.hazards(limit)))
        planned = self._planned(curve, round_seconds(self._costs, context))
        explored = uniform < self.epsilon
        return Choice(
            horizon=limit if explored else planned,
            planned=planned,
            explored=explored,
            propensities=(1.0,) * planned + (self.epsilon,) * (limit - planned),
            survival=curve,
        )

    def hazards(self, limit: int) -> list[float]:
        """Of positions 1 to limit."""
        known = self._means if self.window is None else [sum(trials) / len(trials) for trials in self._trials]
        last = known[-1] if known else self.prior_hazard
        return [*known[:limit], *(last,) * (limit - len(known))]

    def observe(self, feedback: RoundFeedback) -> None:
        """Trials, costs, and at the end of a period the horizon to hold."""
        self._costs.observe_round(feedback)
        rejected_at = feedback.rejected_at
        for place in range(1, (rejected_at or feedback.counted) + 1):
            self._try(place, place == rejected_at)
        self._rounds += 1
        if self._rounds % self.decide_every == 0:
            context = feedback.context
            curve = tuple(survivals(self.hazards(context.limit)))
            self._held = self._decided(curve, round_seconds(self._costs, context))

    def clone(self) -> WindowedSurvival:
        """Without trials, with the costs given at the start."""
        return WindowedSurvival(
            costs=self.costs,
            window=self.window,
            alpha=self.alpha,
            decide_every=self.decide_every,
            hysteresis=self.hysteresis,
            epsilon=self.epsilon,
            floor=self.floor,
            prior_hazard=self.prior_hazard,
        )

    def _try(self, place: int, rejected: bool) -> None:
        if self.window is None:
            if place > len(self._means):
                self._means.append(self.hazards(place)[-1])
            self._means[place - 1] += self.alpha * (rejected - self._means[place - 1])
            return
        if place > len(self._trials):
            self._trials.append(deque(maxlen=self.window))
        self._trials[place - 1].append(rejected)

    def _planned(self, curve: tuple[float, ...], seconds: tuple[float, ...]) -> int:
        limit = len(curve)
        if seconds[limit] == inf or seconds[min(1, limit)] == inf:
            return min(1, limit) if self._rounds % 4 == 3 else limit
        if self.decide_every > 1 and self._held is not None:
            return min(self._held, limit)
        return self._decided(curve, seconds)

    def _decided(self, curve: tuple[float, ...], seconds: tuple[float, ...]) -> int:
        limit = len(curve)
        rates = [gain / cost for gain, cost in zip(gains(curve), seconds, strict=True)]
        floor = min(limit, (0 if self.epsilon > 0.0 else 1) if self.floor is None else self.floor)
        best = max(range(floor, limit + 1), key=lambda horizon: rates[horizon])
        held = self._held
        if held is not None and floor <= held <= limit and rates[best] <= (1.0 + self.hysteresis) * rates[held]:
            return held
        return best
