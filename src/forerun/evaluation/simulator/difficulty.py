"""How hard the text is to draft, token by token: processes of one number, positive where it is hard.

They know positions of a text and nothing of rounds: what a controller does cannot change them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float64


class Difficulty(ABC):
    """A process over the positions of a text."""

    @property
    @abstractmethod
    def name(self) -> str:
        """For tables."""

    @abstractmethod
    def path(self, length: int, *, random: np.random.Generator) -> Float64[np.ndarray, " length"]:
        """One realisation.

        Args:
            length: positions.
            random: source of the realisation.
        """

    def shifts(self, length: int) -> tuple[int, ...]:
        """Positions at which the law of the process jumps."""
        return ()

    @property
    def stationary_spread(self) -> float | None:
        """Standard deviation where every position has the same normal law with mean 0; else ``None``."""
        return None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class IndependentDifficulty(Difficulty):
    """Every position anew: normal with mean 0."""

    spread: float = 1.2

    @property
    def name(self) -> str:
        """``independent``."""
        return "independent"

    @property
    def stationary_spread(self) -> float | None:
        """As given."""
        return self.spread

    def path(self, length: int, *, random: np.random.Generator) -> Float64[np.ndarray, " length"]:
        """See ``Difficulty``."""
        return self.spread * random.standard_normal(length)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AutoregressiveDifficulty(Difficulty):
    """z_t = memory z_{t-1} + noise, stationary with the given spread: easy and hard stretches."""

    spread: float = 1.2
    memory: float = 0.95

    @property
    def name(self) -> str:
        """``ar1``."""
        return "ar1"

    @property
    def stationary_spread(self) -> float | None:
        """As given."""
        return self.spread

    def path(self, length: int, *, random: np.random.Generator) -> Float64[np.ndarray, " length"]:
        """See ``Difficulty``."""
        return self.spread * _ar1(length, self.memory, random)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DriftingDifficulty(Difficulty):
    """A slow swing of the mean, -amplitude cos(2 pi t / period), and an autoregressive part around it."""

    amplitude: float = 1.4
    period: int = 12_000
    spread: float = 0.8
    memory: float = 0.9

    @property
    def name(self) -> str:
        """``drifting``."""
        return "drifting"

    def path(self, length: int, *, random: np.random.Generator) -> Float64[np.ndarray, " length"]:
        """See ``Difficulty``."""
        swing = -self.amplitude * np.cos(2.0 * np.pi * np.arange(length) / self.period)
        return swing + self.spread * _ar1(length, self.memory, random)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchingDifficulty(Difficulty):
    """Easy, hard, easy, hard: the mean jumps after every ``phase`` positions; noise around it as elsewhere."""

    level: float = 1.3
    phase: int = 3_000
    spread: float = 0.6
    memory: float = 0.9

    @property
    def name(self) -> str:
        """``switching``."""
        return "switching"

    def path(self, length: int, *, random: np.random.Generator) -> Float64[np.ndarray, " length"]:
        """See ``Difficulty``."""
        hard = (np.arange(length) // self.phase) % 2 == 1
        return np.where(hard, self.level, -self.level) + self.spread * _ar1(length, self.memory, random)

    def shifts(self, length: int) -> tuple[int, ...]:
        """After every phase."""
        return tuple(range(self.phase, length, self.phase))


def _ar1(length: int, memory: float, random: np.random.Generator) -> Float64[np.ndarray, " length"]:
    """A stationary AR(1) path of unit variance."""
    noise = random.standard_normal(length)
    path = np.empty(length)
    state = noise[0]
    fresh = float(np.sqrt(1.0 - memory * memory))
    for index, value in enumerate(noise.tolist()):
        state = value if index == 0 else memory * state + fresh * value
        path[index] = state
    return path
