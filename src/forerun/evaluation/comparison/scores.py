"""How well survivals are predicted, in a few numbers, each with an interval over answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Bool, Float64

from forerun.evaluation.comparison.calibration import BINS, bin_of
from forerun.evaluation.comparison.predictions import Predictions

RESAMPLES = 1_000

_Score = Callable[[np.ndarray], float]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number with a 95 % bootstrap interval over answers; of one answer alone there is no interval."""

    estimate: float
    low: float | None
    high: float | None
    num_answers: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionScores:
    """Of the same rounds for every predictor.

    Attributes:
        rounds: with predictions.
        positions: predicted in them.
        auc: of reached positions, how well 1 - h_j tells drafts that stand from rejected ones (1/2 is a guess).
        auc_first: the same at position 1, where knowing the depth does not help.
        auc_gain: by how much ``auc`` is above the first predictor's, on the same answers.
        brier: mean squared error of survivals.
        ece: expected calibration error of survivals, ten bins; noise alone makes it positive.
        hazard_error: of AMTP's Lemma 1, where the true survivals are known.
        soft_error: the same against soft labels, and so with a part added that is the same for all predictors.
    """

    rounds: int
    positions: int
    auc: Estimate
    auc_first: Estimate
    auc_gain: Estimate
    brier: Estimate
    ece: Estimate
    hazard_error: Estimate | None
    soft_error: Estimate


def auc(
    scores: Float64[np.ndarray, " n"], positive: Bool[np.ndarray, " n"], weights: Float64[np.ndarray, " n"]
) -> float:
    """Area under the ROC curve: P(score of a positive > score of a negative) + P(equal) / 2.

    Args:
        scores: the larger, the more likely positive.
        positive: what came of it.
        weights: how often each entry counts.

    Returns:
        nan where one kind is missing.

    Example:
        >>> auc(np.array([0.1, 0.4, 0.4, 0.8]), np.array([False, True, False, True]), np.ones(4))
        0.875
    """
    return _area(np.unique(scores, return_inverse=True)[1], positive, weights)


def _area(groups: np.ndarray, positive: np.ndarray, weights: np.ndarray) -> float:
    """The same from the ranks of the scores, equal scores sharing one."""
    positives = np.bincount(groups, weights * positive)
    negatives = np.bincount(groups, weights * ~positive)
    won = positives * (np.cumsum(negatives) - 0.5 * negatives)
    pairs = positives.sum() * negatives.sum()
    return float(won.sum() / pairs) if pairs else float("nan")


def prediction_scores(predicted: Mapping[str, Predictions], *, seed: int) -> dict[str, PredictionScores]:
    """Scores of several predictors of the same rounds; gains are over the first one.

    Args:
        predicted: by name.
        seed: of the resampling, the same answers for all.
    """
    first, *_ = predicted.values()
    answers = int(first.tracks.max()) + 1
    picks = np.random.default_rng(seed).integers(answers, size=(RESAMPLES, answers))
    weights = np.stack([np.bincount(pick, minlength=answers) for pick in picks]).astype(np.float64)
    drawn: dict[str, list[float]] = {}
    found = {}
    for name, own in predicted.items():
        area = _auc(own, own.reached)
        drawn[name] = [area(each) for each in (np.ones(answers), *weights)]
        gains = [after - before for after, before in zip(drawn[name], next(iter(drawn.values())), strict=True)]
        errors = own.hazard_errors
        rounds = own.counted.any(axis=1)
        found[name] = PredictionScores(
            rounds=int(rounds.sum()),
            positions=int(own.counted.sum()),
            auc=_estimate(drawn[name], answers),
            auc_first=_over(_auc(own, own.reached & (np.arange(own.counted.shape[1]) == 0)), weights),
            auc_gain=_estimate(gains, answers),
            brier=_over(_brier(own), weights),
            ece=_over(_ece(own), weights),
            hazard_error=None if errors is None else _over(_mean(errors[rounds], own.tracks[rounds]), weights),
            soft_error=_over(_mean(own.soft_errors[rounds], own.tracks[rounds]), weights),
        )
    return found


def _over(score: _Score, weights: np.ndarray) -> Estimate:
    answers = weights.shape[1]
    return _estimate([score(each) for each in (np.ones(answers), *weights)], answers)


def _estimate(values: list[float], answers: int) -> Estimate:
    """The first value is that of all answers, the others are resampled."""
    low, high = np.nanquantile(values[1:], [0.025, 0.975])
    several = answers > 1
    return Estimate(
        estimate=values[0], low=float(low) if several else None, high=float(high) if several else None,
        num_answers=answers,
    )  # fmt: skip


def _auc(own: Predictions, chosen: np.ndarray) -> _Score:
    scores, positive = -own.hazards[chosen], own.stood[chosen]
    answer = np.broadcast_to(own.tracks[:, None], chosen.shape)[chosen]
    groups = np.unique(scores, return_inverse=True)[1]
    return lambda weights: _area(groups, positive, weights[answer])


def _brier(own: Predictions) -> _Score:
    wrong = np.where(own.counted, own.survivals - own.stood, 0.0) ** 2
    return _mean(wrong[own.counted], np.broadcast_to(own.tracks[:, None], wrong.shape)[own.counted])


def _mean(values: np.ndarray, answer: np.ndarray) -> _Score:
    sums, counts = np.bincount(answer, values), np.bincount(answer)
    return lambda weights: float(weights[: len(sums)] @ sums / (weights[: len(sums)] @ counts))


def _ece(own: Predictions) -> _Score:
    counted = own.counted
    predicted, answer = own.survivals[counted], np.broadcast_to(own.tracks[:, None], counted.shape)[counted]
    answers = int(own.tracks.max()) + 1
    cells = answer * BINS + bin_of(predicted)
    gaps = np.bincount(cells, predicted - own.stood[counted], answers * BINS).reshape(answers, BINS)
    counts = np.bincount(answer, minlength=answers)
    return lambda weights: float(np.abs(weights @ gaps).sum() / (weights @ counts))
