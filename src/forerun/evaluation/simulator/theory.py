"""The setting of AMTP's regret analysis, many runs side by side: linear hazards, square loss, projected descent.

Realisable on purpose: the true hazards are linear in the features and their parameters move along a path of known
length. One array operation serves all runs, so that a million rounds are feasible; ``LinearHazards`` is the same
learner for one run, and a test compares them round by round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Bool, Float64

from forerun.horizons.linear_hazards import theory_rates

NUM_FEATURES = 2
CHUNK = 2_000
"""Rounds whose random numbers are drawn at once."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TheorySetting:
    """Fixed parts of the world and of the learner.

    h_j = <u_j, (1, x)> with x uniform on [-1, 1]^2 and u moving to and fro on a straight line: every position's bias by
    ``swing`` around its centre at most, at a constant speed.

    Attributes:
        centres: hazards in the middle of the path at x = 0, positions 1..K.
        slopes: weight of each feature, the same for all positions.
        swing: how far a bias goes to either side.
        cost_slope: C(k) = 1 + cost_slope k.
        prior: hazard from which every position starts.
        radius: of the learner's ball around the start.
    """

    centres: tuple[float, ...] = (0.30, 0.34, 0.38, 0.42)
    slopes: tuple[float, float] = (0.12, -0.06)
    swing: float = 0.11
    cost_slope: float = 0.25
    prior: float = 0.3
    radius: float = 1.0

    @property
    def costs(self) -> Float64[np.ndarray, " horizons"]:
        """C(0..K)."""
        return np.asarray(1.0 + self.cost_slope * np.arange(len(self.centres) + 1))

    @property
    def gradient_bound(self) -> float:
        """Of a round before inverse-probability weights: every value within 1 of its label, ||(1, x)||^2 <= 3."""
        return 2.0 * float(np.sqrt(len(self.centres) * (1 + NUM_FEATURES)))

    def rates(self, rounds: int, path_length: float, *, partial: bool) -> tuple[float, float]:
        """Epsilon and step that the analysis prescribes."""
        return theory_rates(
            rounds,
            path_length=path_length,
            diameter=2.0 * self.radius,
            gradient_bound=self.gradient_bound,
            partial=partial,
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TheoryRuns:
    """Sums over the rounds of each run.

    Attributes:
        regret: sum of max_k G(k) / C(k) - G(k_t) / C(k_t), with the true survivals.
        squared_error: survival-weighted squared error of the hazards (Lemma 1's quantity).
        tokens: emitted.
        seconds: spent.
        least_optimum: smallest max_k G(k) / C(k) of the contexts met.
    """

    rounds: int
    regret: Float64[np.ndarray, " runs"]
    squared_error: Float64[np.ndarray, " runs"]
    tokens: Float64[np.ndarray, " runs"]
    seconds: Float64[np.ndarray, " runs"]
    least_optimum: Float64[np.ndarray, " runs"]

    def speedup(self, setting: TheorySetting) -> Float64[np.ndarray, " runs"]:
        """S_N: tokens per second over those of plain decoding, 1 / C(0)."""
        return np.asarray(self.tokens / self.seconds * setting.costs[0])

    def speedup_bound(self, setting: TheorySetting) -> Float64[np.ndarray, " runs"]:
        """(rho / r_base) / (1 + K / N + c_max B_N / N), B_N the run's own regret.

        References:
            AMTP, completion-time bound.
        """
        window = len(setting.centres)
        slack = 1.0 + window / self.tokens + setting.costs[-1] * self.regret / self.tokens
        return np.asarray(self.least_optimum * setting.costs[0] / slack)


def theory_runs(
    setting: TheorySetting,
    *,
    rounds: int,
    path_lengths: Float64[np.ndarray, " runs"],
    partial: Bool[np.ndarray, " runs"],
    seed: int,
) -> TheoryRuns:
    """Run the learner in ``len(partial)`` independent worlds.

    Args:
        setting: world and learner.
        rounds: T, which the rates are made for.
        path_lengths: P of each run's parameters.
        partial: whether positions beyond the horizon stay unseen; without it every round shows all K.
        seed: of everything.
    """
    runs, window = len(partial), len(setting.centres)
    rates = [setting.rates(rounds, path, partial=some) for path, some in zip(path_lengths, partial, strict=True)]
    epsilons, steps = np.array(rates).T
    costs = setting.costs
    theta = np.zeros((runs, window, 1 + NUM_FEATURES))  # distance from the start
    sums = np.zeros((4, runs))
    least = np.full(runs, np.inf)
    positions = np.arange(1, window + 1)
    random = np.random.default_rng([seed, rounds])
    for first in range(0, rounds, CHUNK):
        size = min(CHUNK, rounds - first)
        features = np.ones((size, runs, 1 + NUM_FEATURES))
        features[..., 1:] = random.uniform(-1.0, 1.0, (size, runs, NUM_FEATURES))
        hazards = _true_hazards(setting, features, np.arange(first, first + size), rounds, path_lengths)
        rejects = random.random((size, runs, window)) < hazards
        coins = random.random((size, runs)) < epsilons
        survivals = np.cumprod(1.0 - hazards, axis=-1)
        ratios = np.concatenate([np.ones((size, runs, 1)), 1.0 + np.cumsum(survivals, axis=-1)], axis=-1) / costs
        best = ratios.max(axis=-1)
        least = np.minimum(least, best.min(axis=0))
        reached = np.concatenate([np.ones((size, runs, 1)), np.cumprod(1.0 - rejects, axis=-1)], axis=-1)
        for index in range(size):
            x = features[index]
            values = setting.prior + np.einsum("rkf,rf->rk", theta, x)
            predicted = values.clip(0.0, 1.0)
            gains = 1.0 + np.cumsum(np.cumprod(1.0 - predicted, axis=1), axis=1)
            planned = np.where(gains / costs[1:] > 1.0 / costs[0], gains / costs[1:], 0.0)
            horizon = np.where(planned.any(axis=1), planned.argmax(axis=1) + 1, 0)
            drafted = np.where(coins[index], window, horizon)
            # what is seen, and by how much it counts: 1 up to the plan, 1 / epsilon beyond it in explored rounds
            beyond = positions > horizon[:, None]
            weight = np.where(
                beyond & partial[:, None], coins[index][:, None] / np.maximum(epsilons, 1e-300)[:, None], 1.0
            )
            before = reached[index, :, :-1]
            slope = (2.0 * steps)[:, None] * weight * before * (values - rejects[index])
            theta -= slope[:, :, None] * x[:, None, :]
            norm = np.sqrt(np.einsum("rkf,rkf->r", theta, theta))
            theta *= np.minimum(1.0, setting.radius / np.maximum(norm, 1e-300))[:, None, None]
            error = predicted - hazards[index]
            alive = np.concatenate([np.ones((runs, 1)), survivals[index, :, :-1]], axis=1)
            sums[0] += best[index] - ratios[index][np.arange(runs), drafted]
            sums[1] += (alive * error * error).sum(axis=1)
            sums[2] += 1.0 + (reached[index, :, 1:] * (positions <= drafted[:, None])).sum(axis=1)
            sums[3] += costs[drafted]
    return TheoryRuns(
        rounds=rounds, regret=sums[0], squared_error=sums[1], tokens=sums[2], seconds=sums[3], least_optimum=least
    )


def _true_hazards(
    setting: TheorySetting,
    features: Float64[np.ndarray, "size runs features"],
    times: np.ndarray,
    rounds: int,
    path_lengths: Float64[np.ndarray, " runs"],
) -> Float64[np.ndarray, "size runs window"]:
    """Positions on the line after a travel of P t / T: a triangular wave between -swing and swing, begun in the middle.

    The line moves all K biases together, so a way of one unit in parameter space moves each by 1 / sqrt(K).
    """
    window = len(setting.centres)
    travelled = path_lengths * (times[:, None] / rounds) / np.sqrt(window)
    phase = np.mod(travelled + setting.swing, 4.0 * setting.swing)
    place = setting.swing - np.abs(phase - 2.0 * setting.swing)  # from 0 upwards
    centres = np.array(setting.centres)
    linear = features[..., 1:] @ np.array(setting.slopes)
    return np.asarray(centres + place[..., None] + linear[..., None])
