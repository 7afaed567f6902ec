"""Next-token laws: the object that is sampled and the object that is verified, one and the same.

A law knows nothing of where its probabilities come from.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from forerun.distributions.uniforms import check_uniforms
from forerun.errors import ForerunError

NORMALISATION_TOLERANCE = 1e-4
"""How far from 1 a row given to ``DenseLaw`` may sum: float32 rounding passes, a forgotten softmax does not."""


class Law(ABC):
    """A batch of laws of the next token, one per row. Immutable: nothing may write into what it returns."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of rows."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Number of tokens; ids run from 0 to ``vocab_size - 1``."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where the law lives and where its answers come out."""

    @abstractmethod
    def prob_of(self, token_ids: Int64[Tensor, " rows"]) -> Float64[Tensor, " rows"]:
        """Probability of one token per row."""

    @abstractmethod
    def dense(self) -> Float64[Tensor, "rows vocab"]:
        """Probability of every token; rows sum to 1 up to float64 rounding."""

    @abstractmethod
    def rows(self, start: int, stop: int) -> "Law":
        """The laws of rows ``start`` to ``stop - 1``, bit for bit.

        Raises:
            IndexError: Not ``0 <= start <= stop <= len(self)``.
        """

    @abstractmethod
    def sample(self, *, uniforms: Float64[Tensor, " rows"]) -> Int64[Tensor, " rows"]:
        """Draws one token per row by inverting the cumulative law: the first token whose running sum exceeds ``u``.

        A token of probability zero is never returned, whatever the number in [0, 1).

        Args:
            uniforms: One number in [0, 1) per row; they decide everything.

        Raises:
            ForerunError: The uniforms are not ``len(self)`` float64 numbers in [0, 1).
        """

    @abstractmethod
    def most_probable(self) -> "PointLaw":
        """The most probable token of each row as a certain one; the lowest of equals."""

    @abstractmethod
    def entropy(self) -> Float64[Tensor, " rows"]:
        """Shannon entropy of each row in nats, with 0 log 0 = 0."""


@final
class DenseLaw(Law):
    """Laws given by the probability of every token.

    Kept in float64 and divided by the row sum once, here, so that the tested probability is the one with which
    ``sample`` draws. A row that sums to exactly 1 keeps its bits.

    Args:
        probs: Probabilities, not logits.

    Raises:
        ForerunError: A row holds a negative or non-finite number or does not sum to 1.
    """

    def __init__(self, probs: Float[Tensor, "rows vocab"]) -> None:
        """Checks and normalises; the given tensor is not kept."""
        exact = probs.double()
        totals = exact.sum(-1, keepdim=True)  # (rows, 1)
        # Comparisons with NaN are false, so this also finds rows with NaN or infinity.
        valid = (exact.amin(-1) >= 0.0) & ((totals[:, 0] - 1.0).abs() <= NORMALISATION_TOLERANCE)
        if not bool(valid.all()):
            row = int(valid.logical_not().nonzero()[0, 0])
            raise ForerunError(
                f"row {row} is no probability law: smallest entry {float(exact[row].amin())}, "
                f"sum {float(totals[row, 0])}; give probabilities (apply a softmax to logits)"
            )
        self._probs = exact / totals

    @classmethod
    def _trusted(cls, probs: Float64[Tensor, "rows vocab"]) -> "DenseLaw":
        """Wraps rows that are laws already; dividing them again could change the last bit."""
        law = cls.__new__(cls)
        law._probs = probs
        return law

    @classmethod
    def from_log_weights(cls, log_weights: Float[Tensor, "rows vocab"]) -> "DenseLaw":
        """Softmax of each row in float64; every row must have a finite largest entry."""
        return cls._trusted(torch.softmax(log_weights, -1, dtype=torch.float64))

    def __len__(self) -> int:
        return self._probs.shape[0]

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""
        return self._probs.shape[1]

    @property
    def device(self) -> torch.device:
        """Where the probabilities live."""
        return self._probs.device

    def prob_of(self, token_ids: Int64[Tensor, " rows"]) -> Float64[Tensor, " rows"]:
        """Looks the token up in each row."""
        return self._probs.gather(-1, token_ids.to(self.device)[:, None])[:, 0]

    def dense(self) -> Float64[Tensor, "rows vocab"]:
        """The stored probabilities themselves, not a copy."""
        return self._probs

    def rows(self, start: int, stop: int) -> "DenseLaw":
        """A view of some rows."""
        _check_rows(self, start, stop)
        return DenseLaw._trusted(self._probs[start:stop])

    def sample(self, *, uniforms: Float64[Tensor, " rows"]) -> Int64[Tensor, " rows"]:
        """See ``Law.sample``."""
        check_uniforms(uniforms, len(self))
        running = running_sums(self._probs)
        # u < 1 keeps the threshold below the last running sum in float64, so there always is such an index.
        thresholds = uniforms.to(self.device)[:, None] * running[:, -1:]  # (rows, 1)
        return torch.searchsorted(running, thresholds, right=True)[:, 0]

    def most_probable(self) -> "PointLaw":
        """See ``Law.most_probable``."""
        return PointLaw.of_largest(self._probs)

    def entropy(self) -> Float64[Tensor, " rows"]:
        """Sum of ``-p log p``, 0 where a probability is 0."""
        return -torch.xlogy(self._probs, self._probs).sum(-1)


@final
class PointLaw(Law):
    """Laws that put all mass on one token each: greedy choices and deterministic proposals.

    Args:
        token_ids: The certain token of each row.
        vocab_size: Number of tokens of the vocabulary.

    Raises:
        ForerunError: A token id lies outside the vocabulary.
    """

    def __init__(self, token_ids: Int64[Tensor, " rows"], vocab_size: int) -> None:
        """Checks the ids; the given tensor is kept, so it must not be written into."""
        if not bool(((token_ids >= 0) & (token_ids < vocab_size)).all()):
            raise ForerunError(f"token ids {token_ids.tolist()} do not all lie in a vocabulary of {vocab_size}")
        self._token_ids = token_ids
        self._vocab_size = vocab_size

    @classmethod
    def _trusted(cls, token_ids: Int64[Tensor, " rows"], vocab_size: int) -> "PointLaw":
        """Ids that an argmax gave; checking them would wait for the device."""
        law = cls.__new__(cls)
        law._token_ids = token_ids
        law._vocab_size = vocab_size
        return law

    @classmethod
    def of_largest(cls, logits: Float[Tensor, "rows vocab"]) -> "PointLaw":
        """All mass on each row's largest entry, the lowest id among equals."""
        return cls._trusted(logits.argmax(-1), logits.shape[-1])  # torch: the first index among equals

    @property
    def token_ids(self) -> Int64[Tensor, " rows"]:
        """The certain token of each row."""
        return self._token_ids

    def __len__(self) -> int:
        return self._token_ids.shape[0]

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""
        return self._vocab_size

    @property
    def device(self) -> torch.device:
        """Where the token ids live."""
        return self._token_ids.device

    def prob_of(self, token_ids: Int64[Tensor, " rows"]) -> Float64[Tensor, " rows"]:
        """1 for the certain token, 0 for any other."""
        return (self._token_ids == token_ids.to(self.device)).double()

    def dense(self) -> Float64[Tensor, "rows vocab"]:
        """One-hot rows, built for this call."""
        probs = torch.zeros(len(self), self._vocab_size, dtype=torch.float64, device=self.device)
        return probs.scatter_(-1, self._token_ids[:, None], 1.0)

    def rows(self, start: int, stop: int) -> "PointLaw":
        """A view of some rows."""
        _check_rows(self, start, stop)
        return PointLaw._trusted(self._token_ids[start:stop], self._vocab_size)

    def sample(self, *, uniforms: Float64[Tensor, " rows"]) -> Int64[Tensor, " rows"]:
        """The certain tokens, whatever the numbers."""
        check_uniforms(uniforms, len(self))
        return self._token_ids

    def most_probable(self) -> "PointLaw":
        """Itself."""
        return self

    def entropy(self) -> Float64[Tensor, " rows"]:
        """Zero."""
        return torch.zeros(len(self), dtype=torch.float64, device=self.device)


def stack_laws(laws: Sequence[Law]) -> Law:
    """One law with the rows of all, in order, bit for bit; point laws stay a point law.

    Raises:
        ForerunError: No law is given, or they differ in vocabulary.
    """
    sizes = sorted({law.vocab_size for law in laws})
    if len(sizes) != 1:
        raise ForerunError(f"cannot stack laws with vocabulary sizes {sizes}; give at least one, all of one size")
    points = [law.token_ids for law in laws if isinstance(law, PointLaw)]
    if len(points) == len(laws):
        return PointLaw._trusted(torch.cat(points), sizes[0])
    return DenseLaw._trusted(torch.cat([law.dense() for law in laws]))


def running_sums(
    probs: Float64[Tensor, "rows vocab"], *, sequential: bool | None = None
) -> Float64[Tensor, "rows vocab"]:
    """Cumulative probabilities that do not fall, and do not rise over a token of probability zero.

    Args:
        probs: Of laws.
        sequential: Whether the device adds from left to right; ``None`` for what is known of it. Only the CPU does: a
            parallel scan rounds neighbours differently, so there the two properties are made.
    """
    running = probs.cumsum(-1)
    if sequential or (sequential is None and probs.device.type == "cpu"):
        return running
    return running.where(probs > 0.0, 0.0).cummax(-1).values


def _check_rows(law: Law, start: int, stop: int) -> None:
    if not 0 <= start <= stop <= len(law):
        raise IndexError(f"rows {start} to {stop} of a law with {len(law)} rows")
