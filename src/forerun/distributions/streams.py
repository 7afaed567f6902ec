"""Random numbers that depend on the request and on what they decide, never on who asked before."""

from enum import IntEnum
from typing import final

import numpy as np
import torch
from jaxtyping import Float64
from numpy.random.bit_generator import ISeedSequence
from torch import Tensor

from forerun.errors import ForerunError

_WORD = 2**64


class Purpose(IntEnum):
    """What a random number decides. The values are part of what a seed means: never renumber."""

    DRAFT = 0
    """Drawing draft tokens."""
    ACCEPT = 1
    """Accepting or rejecting them."""
    EMIT = 2
    """Drawing the correction or bonus token."""
    EXPLORE = 3
    """The horizon policy's coin."""


@final
class _Key(ISeedSequence):
    """A Philox key as it stands; given a bare one, numpy first asks the operating system for entropy, and drops it."""

    def __init__(self, words: np.ndarray) -> None:
        self.words = words

    def generate_state(self, n_words: int, dtype: object = np.uint64) -> np.ndarray:
        """Both words, which is what Philox asks for."""
        assert n_words == len(self.words) and dtype is np.uint64
        return self.words


@final
class Streams:
    """Counter-based uniform numbers (Philox 4x64) of one request.

    Every (seed, request, sample, purpose, position) has a stream of its own, disjoint from all others, so drafting and
    accepting never share a number and a request draws the same numbers alone and inside a batch.

    A position is the absolute index of the token to be decided: for a block, of the first one. The j-th number
    serves the j-th token of *that* block. Numbers are deliberately not tied to the index of the later tokens:
    a rejected block's discarded tokens have shown their numbers to the horizon policy (through overlaps and
    acceptance probabilities), so the next block, which starts elsewhere, must meet fresh ones.

    Args:
        seed: Which randomness, 0 to 2**64 - 1.
        request: Which request of a run, 0 to 2**64 - 1.
        sample: Which of several answers to the request, 0 to 2**64 - 1.

    Raises:
        ForerunError: Seed, request or sample lies outside its range.

    References:
        Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".
    """

    def __init__(self, seed: int, request: int = 0, sample: int = 0) -> None:
        """Stores the key; nothing is drawn yet."""
        for name, value in (("seed", seed), ("request", request), ("sample", sample)):
            if not 0 <= value < _WORD:
                raise ForerunError(f"{name} is {value}; give a whole number from 0 to 2**64 - 1")
        self._sample = sample
        self._key = _Key(np.array([seed, request], dtype=np.uint64))

    def uniforms(self, purpose: Purpose, position: int, count: int) -> Float64[Tensor, " count"]:
        """The first ``count`` numbers of a stream: multiples of 2**-53 in [0, 1).

        Args:
            purpose: What they decide.
            position: Absolute index of the (first) token they decide, 0 or more.
            count: How many; a longer answer begins with the shorter one.
        """
        return torch.as_tensor(self._draws(purpose, position, count))

    def uniform(self, purpose: Purpose, position: int) -> float:
        """The number with which a stream begins.

        Args:
            purpose: What it decides.
            position: Absolute index of the token.
        """
        return float(self._draws(purpose, position, 1)[0])

    def _draws(self, purpose: Purpose, position: int, count: int) -> np.ndarray:
        # The low counter word runs within the stream, the others name it: streams cannot meet.
        counter = np.array([0, position, purpose, self._sample], dtype=np.uint64)
        philox = np.random.Philox(seed=self._key, counter=counter)  # type: ignore[arg-type]  # stubs know one ISeedSequence
        draws: np.ndarray = (philox.random_raw(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return draws

    def first_uniforms(self, purpose: Purpose, position: int, count: int) -> Float64[Tensor, " count"]:
        """The first numbers of the streams of ``count`` positions in a row: each belongs to its position for good.

        Args:
            purpose: What they decide.
            position: Absolute index of the first of them, 0 or more.
            count: How many positions.
        """
        firsts = [self.uniforms(purpose, place, 1) for place in range(position, position + count)]
        return torch.cat(firsts) if firsts else torch.empty(0, dtype=torch.float64)
