"""Drafters that do what a test tells them."""

from collections.abc import Callable, Sequence
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from forerun.distributions import PointLaw, Processing
from forerun.drafters import (
    Dependence,
    Drafter,
    DrafterSession,
    DraftStop,
    Need,
    Saving,
    TreeDrafter,
    TreeDrafterSession,
)
from forerun.drafters.drafter import ProposerSession
from forerun.verification import Candidates, Proposal, TreeProposal

Guess = Callable[[tuple[int, ...], int], Sequence[int]]
"""From the committed tokens and the horizon to the tokens to propose."""


class CountingSession(ProposerSession):
    """Remembers how many tokens it has taken in, nothing else."""

    def __init__(self) -> None:
        """Starts empty."""
        self._length = 0

    @property
    def length(self) -> int:
        """Tokens taken in."""
        return self._length

    def extend(self, token_ids: Int[Tensor, " length"], features: Float[Tensor, "length layers hidden"]) -> None:
        """Counts the tokens."""
        self._length += len(token_ids)


@final
class GuessingDrafter(Drafter):
    """Proposes what a function of the committed tokens says, as certain tokens."""

    def __init__(
        self, guess: Guess, *, vocab_size: int, max_horizon: int = 16, captured_layers: tuple[int, ...] = ()
    ) -> None:
        """Stores the function; captured features are kept and not used."""
        self.guess = guess
        self.vocab_size = vocab_size
        self._max_horizon = max_horizon
        self._captured_layers = captured_layers
        self.sessions: list[GuessingSession] = []

    name = "guessing"
    max_positions = None
    dependence = Dependence.FULL
    saving = Saving.VERIFICATION
    needs: frozenset[Need] = frozenset()
    prefix_consistent = True

    @property
    def max_horizon(self) -> int:
        """As given."""
        return self._max_horizon

    @property
    def captured_layers(self) -> tuple[int, ...]:
        """As given."""
        return self._captured_layers

    def new_session(self) -> "GuessingSession":
        """A session that stays visible in ``sessions``."""
        self.sessions.append(GuessingSession(self))
        return self.sessions[-1]


@final
class GuessingSession(DrafterSession):
    """All tokens so far, their features, and the sizes of the pieces in which they came."""

    def __init__(self, drafter: GuessingDrafter) -> None:
        """Starts empty."""
        self._drafter = drafter
        self.tokens: list[int] = []
        self.extended: list[int] = []
        self.features: list[Tensor] = []
        self.proposed: list[int] = []

    @property
    def length(self) -> int:
        """Tokens taken in."""
        return len(self.tokens)

    def extend(self, token_ids: Int[Tensor, " length"], features: Float[Tensor, "length layers hidden"]) -> None:
        """Keeps the tokens."""
        self.tokens += token_ids.tolist()
        self.extended.append(len(token_ids))
        self.features.append(features)

    def propose(
        self,
        last_token: int,
        horizon: int,
        processing: Processing,
        *,
        uniforms: Float[Tensor, " horizon"],
        stop: DraftStop | None = None,
    ) -> Proposal:
        """Asks the function."""
        assert len(uniforms) == horizon >= 1
        self.proposed.append(horizon)
        ids = torch.tensor(self._drafter.guess((*self.tokens, last_token), horizon), dtype=torch.int64)
        return Proposal(token_ids=ids, law=PointLaw(ids, self._drafter.vocab_size))


def reciting(sequence: Sequence[int], *, vocab_size: int, max_horizon: int = 16) -> GuessingDrafter:
    """Knows prompt and answer beforehand: every draft is right."""
    return GuessingDrafter(
        lambda committed, horizon: sequence[len(committed) : len(committed) + horizon],
        vocab_size=vocab_size,
        max_horizon=max_horizon,
    )


def wrong_at(
    sequence: Sequence[int],
    wrong: Callable[[int], bool],
    *,
    vocab_size: int,
    max_horizon: int = 16,
    captured_layers: tuple[int, ...] = (),
) -> GuessingDrafter:
    """Recites, but for the places of a block (from 1) where ``wrong`` says so: there the next id stands instead."""

    def guess(committed: tuple[int, ...], horizon: int) -> list[int]:
        right = sequence[len(committed) : len(committed) + horizon]
        return [(token + wrong(place)) % vocab_size for place, token in enumerate(right, start=1)]

    return GuessingDrafter(guess, vocab_size=vocab_size, max_horizon=max_horizon, captured_layers=captured_layers)


@final
class GuessingTree(TreeDrafter):
    """After every token the same few siblings, as a function of it says; deterministic candidates."""

    def __init__(self, children: Callable[[int], tuple[int, ...]], *, vocab_size: int) -> None:
        """Stores the function, which must always give the same number of siblings."""
        self.children = children
        self.width = len(children(0))
        self.vocab_size = vocab_size

    name = "guessing-tree"
    max_horizon = 4
    max_positions = None
    captured_layers = ()
    dependence = Dependence.FULL
    saving = Saving.VERIFICATION
    needs: frozenset[Need] = frozenset()

    def max_nodes(self, depth: int) -> int:
        """Of the full tree."""
        return sum(self.width**level for level in range(1, depth + 1))

    def new_session(self) -> "GuessingTreeSession":
        """Starts empty."""
        return GuessingTreeSession(self)


@final
class GuessingTreeSession(CountingSession, TreeDrafterSession):
    """Of a guessing tree."""

    def __init__(self, drafter: GuessingTree) -> None:
        """Starts empty."""
        super().__init__()
        self._drafter = drafter

    def propose_tree(
        self,
        last_token: int,
        depth: int,
        processing: Processing,
        *,
        uniforms: Float[Tensor, " nodes"],
        branching: tuple[int, ...] | None = None,
    ) -> TreeProposal:
        """The full tree, whatever is asked for."""
        tokens: list[int] = []
        parents: list[int] = []
        level = [(-1, last_token)]
        for _ in range(depth):
            following = []
            for parent, token in level:
                for child in self._drafter.children(token):
                    tokens.append(child)
                    parents.append(parent)
                    following.append((len(tokens) - 1, child))
            level = following
        return TreeProposal(torch.tensor(tokens), tuple(parents), Candidates.DETERMINISTIC, None)
