"""What one verified round says about the rejection hazards: weighted labels, one for each informative position.

Pure functions of the feedback. Positions that were not drafted, or that a stop cut off, are absent: never a label 0.
"""

from __future__ import annotations

from typing import NamedTuple

from forerun.horizons.context import RoundFeedback


class Evidence(NamedTuple):
    """One position's contribution, positions in order from 1.

    Attributes:
        weight: prefix weight w, with expectation s_{j-1}, the survival of the prefix.
        label: rejection label y in [0, 1], with E[w y] = s_{j-1} h_j.
        importance: inverse of the probability that the position was drafted, clipped.
    """

    weight: float
    label: float
    importance: float


def accept_bits(feedback: RoundFeedback) -> list[tuple[float, float]]:
    """(weight, label) from accept bits: weight A_{j-1} = 1{prefix accepted}, label R_j = 1{rejected at j}.

    Positions after the first rejection have weight 0 and are left out, so the list may be shorter than the draft.

    References:
        AMTP, survival-weighted regression.
    """
    rejected_at = feedback.rejected_at
    if rejected_at is None:
        return [(1.0, 0.0)] * feedback.counted
    return [(1.0, 0.0)] * (rejected_at - 1) + [(1.0, 1.0)]


def expected_bits(feedback: RoundFeedback) -> list[tuple[float, float]]:
    """(weight, label) with the verifier's coins integrated out: prod over i < j of a_i, and 1 - overlap_j.

    a_i is the accept probability of the drafted token and 1 - overlap_j the hazard, for token-level verification the TV
    distance, both given the drafted prefix. Under block verification a_i may exceed 1; their product is a probability.
    Products with the gradient have the expectation that accept bits give, with lower variance, and positions after a
    rejection still teach. The list ends where the weight reaches 0.

    References:
        Derived from AMTP's loss by taking expectations over the verification uniforms and the token at j.
    """
    pairs = []
    weight = 1.0
    for position in range(feedback.counted):
        if weight == 0.0:
            break
        pairs.append((weight, 1.0 - feedback.overlaps[position]))
        weight *= feedback.accept_probabilities[position]
    return pairs


def evidence(feedback: RoundFeedback, *, soft: bool, importance_clip: float) -> list[Evidence]:
    """A round's evidence with inverse-probability weights: 1 / P(position j is drafted), at most `importance_clip`.

    With exploration epsilon the weight is 1 up to the planned horizon, in every round, and 1 / epsilon beyond it, where
    only explored rounds have positions at all.

    Args:
        feedback: the verified round.
        soft: labels from `expected_bits` instead of `accept_bits`.
        importance_clip: largest importance weight; a clipped weight trades bias for variance.

    References:
        AMTP, exploration with inverse-probability weighting.
    """
    pairs = expected_bits(feedback) if soft else accept_bits(feedback)
    return [
        Evidence(weight, label, min(1.0 / propensity, importance_clip))
        for (weight, label), propensity in zip(pairs, feedback.choice.propensities, strict=False)
    ]
