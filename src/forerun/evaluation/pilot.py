"""A short run that drafts every horizon in turn: what rounds cost here, and how far drafts get.

One pass answers both questions, since a prefix-consistent drafter's first tokens do not care how many follow them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import final

from forerun.distributions import SamplingParams
from forerun.drafters import Drafter
from forerun.engine import RoundRecord, RoundTotals, generate
from forerun.errors import ForerunError
from forerun.horizons import Choice, CostTable, HorizonPolicy, RoundContext, RoundFeedback, best_horizon
from forerun.models import TransformersTarget

_HAZARD_FLOOR = 0.01  # a pilot is short: no position is believed to be this certain either way


@final
class CyclingHorizon(HorizonPolicy):
    """Every horizon from the largest to 0, over and over; depends on the round number alone.

    Args:
        largest: horizon of the first round.
    """

    def __init__(self, largest: int) -> None:
        self.largest = largest
        self._round = 0

    @property
    def name(self) -> str:
        """``cycling``."""
        return "cycling"

    def propose(self, context: RoundContext, *, uniform: float) -> Choice:
        """The next horizon of the cycle, or the limit where that is smaller."""
        planned = self.largest - self._round % (self.largest + 1)
        horizon = min(planned, context.limit)
        propensities = (1.0,) * horizon + (0.0,) * (context.limit - horizon)
        return Choice(horizon=horizon, planned=horizon, explored=False, propensities=propensities)

    def observe(self, feedback: RoundFeedback) -> None:
        """Count the round."""
        self._round += 1

    def clone(self) -> CyclingHorizon:
        """From the start again."""
        return CyclingHorizon(self.largest)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class HorizonCost:
    """Median seconds of rounds with one horizon."""

    horizon: int
    draft_seconds: float
    verify_seconds: float
    round_seconds: float
    num_rounds: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Pilot:
    """What the short run showed.

    Attributes:
        costs: one entry per horizon, rising.
        hazards: share of rounds that reached position j and were rejected there, j = 1, 2, ...
        context_length: mean number of committed tokens during the rounds.
        rounds: of the run.
    """

    costs: tuple[HorizonCost, ...]
    hazards: tuple[float, ...]
    context_length: int
    rounds: int

    @property
    def cost_table(self) -> CostTable:
        """Round costs for an adaptive policy."""
        return CostTable.from_profile([(cost.horizon, cost.round_seconds) for cost in self.costs])

    @property
    def best_fixed_horizon(self) -> int:
        """The single horizon of at least 1 with the largest expected tokens per second, by these costs and hazards."""
        seconds = self.cost_table.seconds(len(self.hazards))
        # horizon 0 is plain decoding, an arm of its own: priced out of the choice
        return best_horizon(self.hazards, (float("inf"), *seconds[1:])).horizon


def run_pilot(
    target: TransformersTarget,
    drafter: Drafter,
    prompts: list[str],
    *,
    sampling: SamplingParams,
    max_new_tokens: int,
    seed: int,
) -> Pilot:
    """Decode a few prompts with cycling horizons.

    Args:
        target: the model.
        drafter: proposes; must be prefix-consistent, otherwise the hazards would belong to no horizon.
        prompts: not used in the measurement that follows.
        sampling: as in the measurement.
        max_new_tokens: of each answer.
        seed: of every draw.

    Raises:
        ForerunError: the drafter is not prefix-consistent, or the answers were too short to see every horizon.
    """
    if not drafter.prefix_consistent:
        raise ForerunError(f"{drafter.name} drafts differently at each horizon; a cycling pilot cannot describe it")
    policy = CyclingHorizon(drafter.max_horizon)
    records: list[RoundRecord] = []
    contexts: list[int] = []
    for request, prompt in enumerate(prompts):
        answer = generate(
            target, prompt, drafter=drafter, horizon=policy, sampling=sampling,
            max_new_tokens=max_new_tokens, seed=seed, request=request, ignore_stop_ids=True,
        )  # fmt: skip
        length = answer.prefill.prompt_tokens + 1
        for record in answer:
            records.append(record)
            contexts.append(length)
            length += len(record.token_ids)
    costs = tuple(_costs(records, drafter.max_horizon))
    totals = RoundTotals.of(records)
    return Pilot(
        costs=costs,
        hazards=_hazards(totals),
        context_length=round(sum(contexts) / len(contexts)),
        rounds=totals.rounds,
    )


def _costs(records: list[RoundRecord], largest: int) -> list[HorizonCost]:
    costs = []
    for horizon in range(largest + 1):
        chosen = [record.seconds for record in records if record.choice.horizon == horizon == record.drafted]
        if not chosen:
            raise ForerunError(f"the pilot saw no round of horizon {horizon}; give longer answers")
        costs.append(
            HorizonCost(
                horizon=horizon,
                draft_seconds=median(seconds.draft for seconds in chosen),
                verify_seconds=median(seconds.verify for seconds in chosen),
                round_seconds=median(seconds.total for seconds in chosen),
                num_rounds=len(chosen),
            )
        )
    return costs


def _hazards(totals: RoundTotals) -> tuple[float, ...]:
    """Rejections among rounds that drafted position j and had every earlier draft accepted.

    Rounds that did not draft position j say nothing about it; how many did is fixed by the cycle, not by the drafts, so
    the survivals by position can be divided.
    """
    accepted = totals.accepted_by_position + (0,) * (len(totals.drafted_by_position) - len(totals.accepted_by_position))
    survivals = [1.0, *(hits / tries for hits, tries in zip(accepted, totals.drafted_by_position, strict=True))]
    hazards = []
    for before, after in pairwise(survivals):
        hazard = 1.0 - after / before if before > 0.0 else 1.0
        hazards.append(min(max(hazard, _HAZARD_FLOOR), 1.0 - _HAZARD_FLOOR))
    return tuple(hazards)
