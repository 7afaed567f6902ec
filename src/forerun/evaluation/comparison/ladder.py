"""Which features are worth having? The same rounds for every predictor, each predicted before it is learned from."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from statistics import quantiles
from typing import final

from forerun.errors import ForerunError
from forerun.evaluation.comparison.predictions import Predictions, by_round, predictions
from forerun.evaluation.comparison.rows import Scene
from forerun.evaluation.comparison.study import PolicyFactory, starting_table
from forerun.evaluation.replay import Track, replay
from forerun.horizons import Choice, DrawnToken, HorizonPolicy, RoundContext, RoundFeedback, Signal

SECOND_MIN = 1e-9
BLOCK_ROUNDS = 50


@final
class WholeWindow(HorizonPolicy):
    """Drafts as much as each round allows and lets another policy predict and learn: nothing is explored or hidden.

    Args:
        inner: predicts survivals; its horizons are not used.
    """

    def __init__(self, inner: HorizonPolicy) -> None:
        self.inner = inner
        self.rounds: list[RoundFeedback] = []

    @property
    def name(self) -> str:
        """The other's."""
        return self.inner.name

    @property
    def wants(self) -> frozenset[Signal]:
        """The other's."""
        return self.inner.wants

    def propose(self, context: RoundContext, *, uniform: float) -> Choice:
        """The other's prediction; the limit is drafted for certain."""
        limit = context.limit
        chosen = self.inner.propose(context, uniform=uniform)
        return replace(chosen, horizon=limit, planned=limit, explored=False, propensities=(1.0,) * limit, stop=None)

    def observe(self, feedback: RoundFeedback) -> None:
        """The other learns, and the round is kept."""
        self.rounds.append(feedback)
        self.inner.observe(feedback)

    def clone(self) -> WholeWindow:
        """A clone of the other, nothing kept."""
        return WholeWindow(self.inner.clone())


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTime:
    """Microseconds of processor time for one proposal and one observation, over blocks of 50 rounds."""

    median: float
    lower_quartile: float
    upper_quartile: float
    blocks: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LadderScene:
    """What every predictor said in one scene, and how long it took.

    Attributes:
        predicted: by name, in the same rounds; ``estimate`` where survivals are estimated.
        microseconds: by name, of predictors that learn.
    """

    predicted: dict[str, Predictions]
    microseconds: dict[str, RoundTime]


def climb(scene: Scene, predictors: Mapping[str, PolicyFactory]) -> LadderScene:
    """Run every predictor over whole windows: position i leads to i + 1 + accepted, whatever is predicted.

    Args:
        scene: texts and costs.
        predictors: by name; each has to predict survivals.

    Raises:
        ForerunError: one predicts none, or there are too few rounds to time.
    """
    tracks = tuple(map(with_draft_margins, scene.tracks))
    table = starting_table(tracks, scene.costs)
    predicted, rounds = {}, {}
    for name, factory in predictors.items():
        policy = WholeWindow(factory(table))
        run = replay(policy, tracks, scene.costs)
        predicted[name] = predictions(run, tracks)
        if not predicted[name].counted.any():
            raise ForerunError(f"{name} predicts no survivals: leave it out of the ladder")
        rounds[name] = policy.rounds
        if len(policy.rounds) < 2 * BLOCK_ROUNDS:
            raise ForerunError(f"{len(policy.rounds)} rounds are too few for a ladder: give longer texts")
    estimates = [track.survivals for track in tracks if track.survivals is not None and track.estimated]
    if estimates:
        predicted["estimate"] = predictions(replace(run, predicted=by_round(run, estimates)), tracks)
    fresh = {name: factory(table) for name, factory in predictors.items()}
    return LadderScene(predicted=predicted, microseconds=round_times(fresh, rounds))


def round_times(
    policies: Mapping[str, HorizonPolicy], rounds: Mapping[str, Sequence[RoundFeedback]]
) -> dict[str, RoundTime]:
    """Time the policies in turn, block by block, so that what disturbs the machine disturbs them all.

    Args:
        policies: that have learned nothing.
        rounds: of each, equally many and at least 100; the policy is asked in their contexts and told their outcome.
    """
    taken: dict[str, list[float]] = {name: [] for name in policies}
    count = len(next(iter(rounds.values())))
    for first in range(0, count - BLOCK_ROUNDS + 1, BLOCK_ROUNDS):
        for name, policy in policies.items():
            block = rounds[name][first : first + BLOCK_ROUNDS]
            started = time.process_time()
            for feedback in block:
                policy.propose(feedback.context, uniform=0.5)
                policy.observe(feedback)
            taken[name].append((time.process_time() - started) / BLOCK_ROUNDS * 1e6)
    return {name: _spread(values) for name, values in taken.items()}


def with_draft_margins(track: Track) -> Track:
    """The track with contexts that tell the draft laws' top-2 margins, in log-probability, from what was recorded.

    Position j's law is the one after the drafts before it. Only a drafter whose laws depend on no drawn token knows it
    before drafting; of any other this is what a scheduler learns afterwards.
    """
    return replace(
        track,
        contexts=tuple(
            replace(context, draft_margins=tuple(map(_log_margin, drawn)))
            for context, drawn in zip(track.contexts, track.drawn, strict=True)
        ),
    )


def _log_margin(token: DrawnToken) -> float:
    law = token.law
    return log(law.top_prob / max(law.top_prob - law.margin, SECOND_MIN))


def _spread(values: list[float]) -> RoundTime:
    low, middle, high = quantiles(values, n=4)
    return RoundTime(median=middle, lower_quartile=low, upper_quartile=high, blocks=len(values))
