"""What one verified round says about the rejection hazards: weighted labels, one for each informative position.

Pure functions of the feedback. Positions that were not drafted, or that a stop cut off, are absent: never a label 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from operator import mul
from typing import NamedTuple

from forerun.horizons.context import RoundFeedback


class Item(NamedTuple):
    """One position's contribution."""

    weight: float
    label: float
    importance: float


class Evidence(NamedTuple):
    """A round's contributions in columns, positions in order from 1.

    Columns, since a round is taken apart many times within microseconds.

    Attributes:
        weights: prefix weights w, with expectation s_{j-1}, the survival of the prefix.
        labels: rejection labels y in [0, 1], with E[w y] = s_{j-1} h_j.
        importances: inverses of the probabilities that the positions were drafted, clipped.
        factors: importance times weight, what a position counts in a loss.
    """

    weights: list[float]
    labels: list[float]
    importances: list[float]
    factors: list[float]

    @classmethod
    def weighted(cls, weights: list[float], labels: list[float], importances: list[float]) -> Evidence:
        """From the other three columns."""
        return cls(weights, labels, importances, list(map(mul, weights, importances)))

    @classmethod
    def of(cls, items: Iterable[tuple[float, float, float]]) -> Evidence:
        """From one (weight, label, importance) for each position."""
        rows = list(items)
        return cls.weighted([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows])

    def items(self) -> list[Item]:
        """One item for each position."""
        return list(map(Item, self.weights, self.labels, self.importances))


def accept_bits(feedback: RoundFeedback) -> tuple[list[float], list[float]]:
    """Weights and labels from accept bits: A_{j-1} = 1{prefix accepted} and R_j = 1{rejected at j}.

    Positions after the first rejection have weight 0 and are left out, so the lists may be shorter than the draft.

    References:
        AMTP, survival-weighted regression.
    """
    rejected_at = feedback.rejected_at
    if rejected_at is None:
        return [1.0] * feedback.counted, [0.0] * feedback.counted
    return [1.0] * rejected_at, [0.0] * (rejected_at - 1) + [1.0]


def expected_bits(feedback: RoundFeedback) -> tuple[list[float], list[float]]:
    """Weights and labels with the verifier's coins integrated out: prod over i < j of a_i, and 1 - overlap_j.

    a_i is the accept probability of the drafted token and 1 - overlap_j the hazard, for token-level verification the TV
    distance, both given the drafted prefix. Under block verification a_i may exceed 1; their product is a probability.
    Products with the gradient have the expectation that accept bits give, with lower variance, and positions after a
    rejection still teach. The lists end where the weight reaches 0.

    References:
        Derived from AMTP's loss by taking expectations over the verification uniforms and the token at j.
    """
    counted = feedback.counted
    if not counted:
        return [], []
    weights = list(accumulate(feedback.accept_probabilities[: counted - 1], mul, initial=1.0))
    if weights[-1] == 0.0:
        weights = weights[: weights.index(0.0)]
    return weights, [1.0 - overlap for overlap in feedback.overlaps[: len(weights)]]


def evidence(
    feedback: RoundFeedback,
    *,
    soft: bool,
    importance_clip: float,
    survival_weighted: bool = True,
    inverse_propensity: bool = True,
) -> Evidence:
    """A round's evidence with inverse-probability weights: 1 / P(position j is drafted), at most `importance_clip`.

    With exploration epsilon the weight is 1 up to the planned horizon, in every round, and 1 / epsilon beyond it, where
    only explored rounds have positions at all.

    Args:
        feedback: the verified round.
        soft: labels from `expected_bits` instead of `accept_bits`.
        importance_clip: largest importance weight; a clipped weight trades bias for variance.
        survival_weighted: False is an ablation: every drafted position counts alike, which learns the mean mismatch in
            place of the hazard (1/2 in place of 1/3 in the paper's example). It has soft labels only, since no accept
            bit exists behind a rejection.
        inverse_propensity: False is an ablation: all rounds are pooled as if the horizon had been chosen blindly.

    References:
        AMTP, exploration with inverse-probability weighting.
    """
    if survival_weighted:
        weights, labels = expected_bits(feedback) if soft else accept_bits(feedback)
    else:
        labels = [1.0 - overlap for overlap in feedback.overlaps[: feedback.counted]]
        weights = [1.0] * len(labels)
    count = len(weights)
    if feedback.choice.planned >= count or not inverse_propensity:
        return Evidence(weights, labels, [1.0] * count, weights)
    return Evidence.weighted(weights, labels, _importances(feedback, count, importance_clip))


def survival_evidence(feedback: RoundFeedback, *, soft: bool, importance_clip: float) -> Evidence:
    """For learners of survivals themselves: weight 1 at every position that counts, label with mean s_j.

    The label is the prefix weight times the chance to pass j: 1{first j accepted} from accept bits, and its expectation
    over the verifier's coins and the token at j where `soft`. Unlike a hazard's evidence it goes on behind a rejection,
    with label 0, and in a tree through the depths that were never tried.
    """
    weights, rejected = expected_bits(feedback) if soft else accept_bits(feedback)
    labels = [weight * (1.0 - label) for weight, label in zip(weights, rejected, strict=True)]
    known = feedback.depth if feedback.censored is None else feedback.counted
    labels += [0.0] * (known - len(labels))
    importances = _importances(feedback, len(labels), importance_clip)
    return Evidence([1.0] * len(labels), labels, importances, importances)


def _importances(feedback: RoundFeedback, count: int, clip: float) -> list[float]:
    """1 / propensity up to the clip; 1 as far as the plan goes."""
    planned, floor = min(feedback.choice.planned, count), 1.0 / clip
    importances = [1.0] * planned
    for propensity in feedback.choice.propensities[planned:count]:
        importances.append(1.0 / propensity if propensity > floor else clip)
    return importances
