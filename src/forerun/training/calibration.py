"""Sequential temperature scaling: makes the confidence head's survival probabilities mean what they say.

One temperature for each slot, found from left to right: that of slot k minimises the expected calibration error of the
product over the slots up to k, the earlier temperatures being fixed. (DSpark, arXiv 2607.05147, scheduling section.)
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

NUM_BINS = 15
_GRID = torch.logspace(-1.0, 1.0, 81)  # 0.1 .. 10 in steps of 6 %


def calibration_error(
    predicted: Float[Tensor, " blocks"], observed: Float[Tensor, " blocks"], *, num_bins: int = NUM_BINS
) -> float:
    """Expected calibration error: mean distance, over equal bins of the prediction, of its mean from the outcome's.

    Args:
        predicted: probabilities.
        observed: outcomes or their probabilities.
        num_bins: of equal width; each counts by the number of its blocks.

    Example:
        >>> import torch
        >>> error = calibration_error(torch.tensor([0.9, 0.9, 0.1]), torch.tensor([1.0, 0.0, 0.0]))
        >>> round(error, 4)  # (2 * 0.4 + 0.1) / 3
        0.3
    """
    bins = (predicted * num_bins).long().clamp(0, num_bins - 1)  # NaN goes anywhere, and makes the error NaN
    gaps = torch.zeros(num_bins, dtype=predicted.dtype).index_add_(0, bins, predicted - observed)
    return float(gaps.abs().sum() / len(predicted))


def survival_errors(
    confidence: Float[Tensor, "blocks slots"],
    acceptance: Float[Tensor, "blocks slots"],
    valid: Bool[Tensor, "blocks slots"],
    temperatures: Float[Tensor, " slots"],
) -> list[float]:
    """Calibration error of the predicted survival up to each slot, over the blocks that have it.

    Args:
        confidence: log-odds of the head.
        acceptance: 1 - TV, what the head is trained on; the outcome of a prefix is their product.
        valid: slots with a label.
        temperatures: the log-odds are divided by them.
    """
    predicted = (confidence / temperatures).sigmoid().cumprod(-1)
    observed = acceptance.cumprod(-1)
    return [
        calibration_error(predicted[valid[:, slot], slot], observed[valid[:, slot], slot])
        for slot in range(confidence.shape[1])
    ]


def sequential_temperatures(
    confidence: Float[Tensor, "blocks slots"],
    acceptance: Float[Tensor, "blocks slots"],
    valid: Bool[Tensor, "blocks slots"],
) -> Float[Tensor, " slots"]:
    """The temperatures; 1 where a slot has no block or no temperature beats 1.

    Args:
        confidence: as in ``survival_errors``.
        acceptance: likewise.
        valid: likewise.
    """
    temperatures = torch.ones(confidence.shape[1])
    reached = torch.ones(len(confidence))  # predicted survival before the slot, calibrated
    survived = acceptance.cumprod(-1)
    for slot in range(confidence.shape[1]):
        known = valid[:, slot]
        if bool(known.any()):
            best = _error(confidence[:, slot], reached, survived[:, slot], known, torch.tensor(1.0))
            for temperature in _GRID:
                error = _error(confidence[:, slot], reached, survived[:, slot], known, temperature)
                if error < best:
                    best, temperatures[slot] = error, temperature
        reached = reached * (confidence[:, slot] / temperatures[slot]).sigmoid()
    return temperatures


def _error(confidence: Tensor, reached: Tensor, survived: Tensor, known: Tensor, temperature: Tensor) -> float:
    predicted = reached * (confidence / temperature).sigmoid()
    return calibration_error(predicted[known], survived[known])
