"""Worlds: texts whose survivals are known, with what a policy is told about them and the luck of every draft.

A world is drawn once from a seed, so all controllers face the same positions, features, coins and drafts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from math import log
from typing import final

import numpy as np
from jaxtyping import Float64, Int64

from forerun.evaluation.replay import Track
from forerun.evaluation.simulator.difficulty import AutoregressiveDifficulty, Difficulty
from forerun.horizons import DraftStatistics, DrawnToken, RoundContext

PROMPT_TOKENS = 64
QUADRATURE_NODES = 24
CONFIDENCE_MIN = 1e-3


class World(ABC):
    """A source of tracks."""

    @property
    @abstractmethod
    def name(self) -> str:
        """For tables."""

    @property
    @abstractmethod
    def window(self) -> int:
        """Largest horizon."""

    @property
    @abstractmethod
    def stationary(self) -> bool:
        """Whether the law is the same everywhere."""

    @abstractmethod
    def tracks(self, num_tokens: int, *, seed: int) -> tuple[Track, ...]:
        """Answers with at least so many tokens together.

        Args:
            num_tokens: of all answers together, rounded up to whole answers.
            seed: of everything that is drawn.
        """

    def shifts(self, num_tokens: int) -> tuple[int, ...]:
        """Token counts, over all answers, at which the law jumps."""
        return ()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class HazardWorld(World):
    """Hazards that follow a difficulty: h_j = sigmoid(base + rise (j - 1) + difficulty), the same path for all depths.

    A draft token's overlap is drawn around 1 - h_j (beta law, given concentration), independently of the tokens before
    it; then a token that the target likes at least as much is drawn with probability 1 - r, and else one that stands
    with probability 1 - r, where r = sqrt(1 - overlap). So accept probabilities average to the overlap, as those of
    token-level verification do, and survivals are exactly prod (1 - h_i).

    The policy sees entropy, top probability and margin of a target law whose entropy is softplus(difficulty + noise).

    Attributes:
        difficulty: how hard the text is.
        base: log-odds of the first hazard at difficulty 0.
        rise: of the log-odds by depth.
        signal_noise: standard deviation of the noise between difficulty and signal; infinity hides it altogether.
        concentration: of the overlaps; larger means closer to 1 - h_j.
        confidence_noise: standard deviation of what is added to the log-odds of an overlap to make the draft law's
            confidence, which stop rules see.
        answer_tokens: length of each answer.
        time_noise: standard deviation of the log of the seconds that policies are told.
        size: largest horizon.
    """

    difficulty: Difficulty = field(default_factory=AutoregressiveDifficulty)
    base: float = -1.7
    rise: float = 0.08
    signal_noise: float = 0.5
    concentration: float = 4.0
    confidence_noise: float = 1.0
    answer_tokens: int = 500
    time_noise: float = 0.03
    size: int = 8

    @property
    def name(self) -> str:
        """The difficulty's."""
        return self.difficulty.name

    @property
    def window(self) -> int:
        """As given."""
        return self.size

    @property
    def stationary(self) -> bool:
        """The difficulty's."""
        return self.difficulty.stationary_spread is not None

    def shifts(self, num_tokens: int) -> tuple[int, ...]:
        """The difficulty's."""
        return self.difficulty.shifts(num_tokens)

    def tracks(self, num_tokens: int, *, seed: int) -> tuple[Track, ...]:
        """See ``World``."""
        random = np.random.default_rng([seed, 0x517])
        answers = -(-num_tokens // self.answer_tokens)
        total = answers * self.answer_tokens
        difficulty = self.difficulty.path(total, random=random)
        hazards = self._hazards(difficulty)  # (total, size)
        overlaps = random.beta(self.concentration * (1.0 - hazards), self.concentration * hazards)
        root = np.sqrt(1.0 - overlaps)
        probabilities = np.where(random.random(hazards.shape) < root, 1.0 - root, 1.0)
        stands = random.random(hazards.shape) < probabilities
        signal = None
        if np.isfinite(self.signal_noise):
            signal = difficulty + self.signal_noise * random.standard_normal(total)
        drawn = _Drawn(
            survivals=np.cumprod(1.0 - hazards, axis=1),
            overlaps=overlaps,
            probabilities=probabilities,
            accepted=np.cumprod(stands, axis=1).sum(axis=1),
            coins=random.random(total),
            time_factors=np.exp(self.time_noise * random.standard_normal(total)),
            signal=signal,
            told=self._told(signal, total),
            confidences=_blurred(overlaps, self.confidence_noise, random),
        )
        size = self.answer_tokens
        return tuple(drawn.track(f"{self.name} {index}", index * size, size) for index in range(answers))

    def _hazards(self, difficulty: Float64[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape {self.size}"]:
        logits = self.base + self.rise * np.arange(self.size) + difficulty[..., None]
        return np.asarray(1.0 / (1.0 + np.exp(-logits)))

    def _told(
        self, signal: Float64[np.ndarray, " total"] | None, total: int
    ) -> Float64[np.ndarray, "total {self.size}"] | None:
        """E[s_j | signal]: the difficulty given the signal is normal, so a Gauss-Hermite sum has it."""
        spread = self.difficulty.stationary_spread
        if spread is None:
            return None
        share = 0.0 if signal is None else spread**2 / (spread**2 + self.signal_noise**2)
        centre = np.zeros(total) if signal is None else share * signal
        nodes, weights = np.polynomial.hermite_e.hermegauss(QUADRATURE_NODES)
        survivals = np.zeros((total, self.size))
        for node, weight in zip(nodes, weights / weights.sum(), strict=True):
            difficulty = centre + node * spread * np.sqrt(1.0 - share)
            survivals += weight * np.cumprod(1.0 - self._hazards(difficulty), axis=1)
        return survivals


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryWorld(World):
    """The paper's binary example at every position: hazards 1/4 and 1/3, although the mean mismatch is 1/2.

    Draft token 0 or 1, a fair coin; the target wants 0 with probability 3/4, so 0 stands for certain and 1 in half of
    the cases. The second draft is perfect after 0 and hopeless after 1. So s = (3/4, 1/2) and G(2) = 2.25.
    """

    answer_tokens: int = 500
    time_noise: float = 0.03

    @property
    def name(self) -> str:
        """``binary``."""
        return "binary"

    @property
    def window(self) -> int:
        """Two drafts."""
        return 2

    @property
    def stationary(self) -> bool:
        """Yes."""
        return True

    def tracks(self, num_tokens: int, *, seed: int) -> tuple[Track, ...]:
        """See ``World``."""
        random = np.random.default_rng([seed, 0xB17])
        answers = -(-num_tokens // self.answer_tokens)
        total = answers * self.answer_tokens
        perfect = random.integers(2, size=total) == 0
        probabilities = np.stack([np.where(perfect, 1.0, 0.5), np.where(perfect, 1.0, 0.0)], axis=1)
        stands = random.random(probabilities.shape) < probabilities
        drawn = _Drawn(
            survivals=np.broadcast_to([0.75, 0.5], (total, 2)),
            overlaps=np.stack([np.full(total, 0.75), np.where(perfect, 1.0, 0.0)], axis=1),
            probabilities=probabilities,
            accepted=np.cumprod(stands, axis=1).sum(axis=1),
            coins=random.random(total),
            time_factors=np.exp(self.time_noise * random.standard_normal(total)),
            signal=None,
            told=np.broadcast_to([0.75, 0.5], (total, 2)),
            confidences=np.broadcast_to([0.75, 0.5], (total, 2)),
        )
        size = self.answer_tokens
        return tuple(drawn.track(f"{self.name} {index}", index * size, size) for index in range(answers))


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Drawn:
    """Everything drawn for all positions of all answers."""

    survivals: Float64[np.ndarray, "total window"]
    overlaps: Float64[np.ndarray, "total window"]
    probabilities: Float64[np.ndarray, "total window"]
    accepted: Int64[np.ndarray, " total"]
    coins: Float64[np.ndarray, " total"]
    time_factors: Float64[np.ndarray, " total"]
    signal: Float64[np.ndarray, " total"] | None
    told: Float64[np.ndarray, "total window"] | None
    confidences: Float64[np.ndarray, "total window"]

    def track(self, name: str, first: int, size: int) -> Track:
        """One answer's part: positions ``first`` to ``first + size``."""
        part = slice(first, first + size)
        window = self.survivals.shape[1]
        signal = [None] * size if self.signal is None else self.signal[part].tolist()
        # the last token of an answer needs no draft: a round there emits it by itself
        limits = [min(window, size - 1 - index) for index in range(size)]
        return Track(
            name=name,
            task="simulated",
            contexts=tuple(
                _context(limit, PROMPT_TOKENS + index, index, seen)
                for index, (limit, seen) in enumerate(zip(limits, signal, strict=True), start=1)
            ),
            coins=tuple(self.coins[part].tolist()),
            accepted=tuple(
                min(accepted, limit) for accepted, limit in zip(self.accepted[part].tolist(), limits, strict=True)
            ),
            accept_probabilities=tuple(map(tuple, self.probabilities[part].tolist())),
            overlaps=tuple(map(tuple, self.overlaps[part].tolist())),
            censored=(None,) * size,
            drawn=tuple(map(_drawn_tokens, self.probabilities[part].tolist(), self.confidences[part].tolist())),
            time_factors=tuple(self.time_factors[part].tolist()),
            survivals=self.survivals[part],
            told_survivals=None if self.told is None else self.told[part],
        )


def _blurred(
    overlaps: Float64[np.ndarray, "total window"], noise: float, random: np.random.Generator
) -> Float64[np.ndarray, "total window"]:
    """Probabilities whose log-odds are those of the overlaps and normal noise, away from 0 and 1."""
    inside = np.clip(overlaps, CONFIDENCE_MIN, 1.0 - CONFIDENCE_MIN)
    odds = np.log(inside / (1.0 - inside)) + noise * random.standard_normal(overlaps.shape)
    return np.asarray(np.clip(1.0 / (1.0 + np.exp(-odds)), CONFIDENCE_MIN, 1.0 - CONFIDENCE_MIN))


def _context(limit: int, length: int, generated: int, signal: float | None) -> RoundContext:
    if signal is None:
        return RoundContext(limit=limit, context_length=length, generated=generated, temperature=1.0)
    entropy = float(np.logaddexp(0.0, signal))
    top = float(np.exp(-entropy))
    return RoundContext(
        limit=limit,
        context_length=length,
        generated=generated,
        temperature=1.0,
        target_entropy=entropy,
        target_top_prob=top,
        target_margin=max(0.0, 2.0 * top - 1.0),
    )


def _drawn_tokens(probabilities: list[float], confidences: list[float]) -> tuple[DrawnToken, ...]:
    """Drafts whose laws are as flat as their confidences are small.

    Top probability = confidence, entropy = -log(confidence), margin = 2 confidence - 1 where positive. The drawn token
    has the top probability where it certainly stands, and else what is left.
    """
    tokens = []
    for probability, confidence in zip(probabilities, confidences, strict=True):
        law = DraftStatistics(
            entropy=-log(confidence),
            top_prob=confidence,
            margin=max(0.0, 2.0 * confidence - 1.0),
            confidence=confidence,
        )
        tokens.append(DrawnToken(law, confidence if probability == 1.0 else 1.0 - confidence))
    return tuple(tokens)
