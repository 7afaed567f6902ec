"""Weighted logistic regression by Newton steps, for rivals and estimates that fit one."""

from __future__ import annotations

import numpy as np

STEPS = 25
ENOUGH = 1e-8


def fit_logistic(
    rows: np.ndarray, labels: np.ndarray, weights: np.ndarray, *, ridge: float, start: np.ndarray | None = None
) -> np.ndarray:
    """The minimiser of sum of weight * log loss + ridge / 2 * |w - start|^2.

    Args:
        rows: one row of numbers for each observation.
        labels: in [0, 1].
        weights: of the observations.
        ridge: above 0, which makes the minimiser unique.
        start: where the penalty is 0; None is the origin.
    """
    centre = np.zeros(rows.shape[1]) if start is None else start
    found = centre.copy()
    for _ in range(STEPS):
        probs = 1.0 / (1.0 + np.exp(-np.clip(rows @ found, -30.0, 30.0)))
        gradient = rows.T @ (weights * (probs - labels)) + ridge * (found - centre)
        curvature = (rows.T * (weights * probs * (1.0 - probs))) @ rows + ridge * np.eye(len(found))
        step = np.linalg.solve(curvature, gradient)
        size = float(np.abs(step).max())
        found = found - step / max(1.0, size / 2.0)  # long steps are shortened: far out the curvature is tiny
        if size < ENOUGH:
            break
    return found
