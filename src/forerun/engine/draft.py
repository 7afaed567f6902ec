"""One round's draft, chain or tree, seen the way the engine needs it: what the target reads, and what stands."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from forerun.distributions import Law, PointLaw, Processing, Purpose, Streams, UnusableLogits, stack_laws
from forerun.verification import Proposal, Rule, TokenLevel, TreeProposal, TreeRule


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What verification said.

    Attributes:
        drafted: all drafts, as far as the drafter's rows were laws.
        depth: most of them that could have been accepted.
        cut_short: whether the drafter's logits stopped being a law before the horizon was reached.
        kept: offsets in the block (0 is the last committed token) of the accepted drafts, in order.
        emission: law of the token after them.
        accept_probabilities: for the horizon policy, see ``Outcome`` and ``TreeOutcome``.
        overlaps: likewise.
    """

    drafted: tuple[int, ...]
    depth: int
    cut_short: bool
    kept: tuple[int, ...]
    emission: Law
    accept_probabilities: Float64[Tensor, " depth"]
    overlaps: Float64[Tensor, " depth"]


class Draft(ABC):
    """Draft tokens of one request in one round; they may still be on the device."""

    @property
    @abstractmethod
    def token_ids(self) -> Int[Tensor, " tokens"]:
        """All that the target reads."""

    @property
    @abstractmethod
    def parents(self) -> tuple[int, ...] | None:
        """For the block [last committed token, drafts]: see ``Block.parents``; ``None`` for a chain."""

    @property
    @abstractmethod
    def depth(self) -> int:
        """Most drafts that can be accepted."""

    @abstractmethod
    def verify(
        self, logits: Float[Tensor, "rows vocab"], processing: Processing, *, streams: Streams, position: int
    ) -> Verdict:
        """Test the drafts.

        Args:
            logits: the target's, one row for the last committed token and one for each draft.
            processing: of the request.
            streams: of the request.
            position: absolute index of the first draft.
        """

    def inputs(self, last_token: int) -> Int[Tensor, " block"]:
        """What the target reads: the last committed token, then the drafts."""
        return torch.cat([torch.tensor([last_token], device=self.token_ids.device), self.token_ids])


@final
class ChainDraft(Draft):
    """Drafts that follow one another.

    Args:
        proposal: of the drafter.
        rule: decides.
    """

    def __init__(self, proposal: Proposal, rule: Rule) -> None:
        self._proposal = proposal
        self._rule = rule

    @property
    def token_ids(self) -> Int[Tensor, " tokens"]:
        """All that the target reads."""
        return self._proposal.token_ids

    @property
    def parents(self) -> None:
        """A chain."""
        return None

    @property
    def depth(self) -> int:
        """Number of tokens."""
        return self._proposal.horizon

    def verify(
        self, logits: Float[Tensor, "rows vocab"], processing: Processing, *, streams: Streams, position: int
    ) -> Verdict:
        """See :class:`Draft`."""
        proposal = self._proposal.read()
        drafts = proposal.token_ids.tolist()
        paths = [drafts[:length] for length in range(len(drafts) + 1)]
        if self._rule.draws_as_plain_decoding:
            uniforms = streams.first_uniforms(Purpose.EMIT, position, proposal.horizon)
        else:
            uniforms = streams.uniforms(Purpose.ACCEPT, position, proposal.horizon)
        outcome = self._rule.verify(
            laws_met(logits[: len(paths)], processing, paths, parents=range(-1, len(drafts) - 1)),
            proposal,
            uniforms=uniforms,
        )
        return Verdict(
            drafted=tuple(drafts),
            depth=len(drafts),
            cut_short=proposal.cut_short,
            kept=tuple(range(1, outcome.accepted + 1)),
            emission=outcome.emission,
            accept_probabilities=outcome.accept_probabilities,
            overlaps=outcome.overlaps,
        )


@final
class TreeDraft(Draft):
    """Drafts that branch.

    Args:
        proposal: of the drafter.
        rule: decides.
    """

    def __init__(self, proposal: TreeProposal, rule: TreeRule) -> None:
        self._proposal = proposal
        self._rule = rule

    @property
    def token_ids(self) -> Int[Tensor, " tokens"]:
        """All nodes."""
        return self._proposal.token_ids

    @property
    def parents(self) -> tuple[int, ...]:
        """The block begins with the last committed token, so node i is token i + 1 of it."""
        return (-1, *(parent + 1 for parent in self._proposal.parents))

    @property
    def depth(self) -> int:
        """Length of the longest path."""
        return self._proposal.depth

    def verify(
        self, logits: Float[Tensor, "rows vocab"], processing: Processing, *, streams: Streams, position: int
    ) -> Verdict:
        """See :class:`Draft`."""
        outcome = self._rule.verify(
            laws_met(logits, processing, [(), *self._proposal.paths], parents=self._proposal.parents),
            self._proposal,
            uniforms=streams.uniforms(Purpose.ACCEPT, position, len(self.token_ids)),
        )
        return Verdict(
            drafted=tuple(self.token_ids.tolist()),
            depth=self.depth,
            cut_short=self._proposal.cut_short,
            kept=tuple(node + 1 for node in outcome.path),
            emission=outcome.emission,
            # A tree tells of the depths that its path reached, so there the weight of a prefix is the bit itself.
            accept_probabilities=outcome.prefix_weights,
            overlaps=outcome.overlaps,
        )


def no_draft(vocab_size: int) -> ChainDraft:
    """A round of plain decoding: without drafts every rule draws from the target's law."""
    nothing = torch.empty(0, dtype=torch.int64)
    return ChainDraft(Proposal(token_ids=nothing, law=PointLaw(nothing, vocab_size)), TokenLevel())


def laws_met(
    logits: Float[Tensor, "rows vocab"],
    processing: Processing,
    paths: Sequence[Sequence[int]],
    *,
    parents: Sequence[int],
) -> Law:
    """Laws of the target's rows, as far as plain decoding could meet them.

    Behind a draft that the target excludes, a user's processor may well leave no token at all (a grammar does). Every
    rule rejects that draft for certain, so what stands behind it cannot matter; the row before it fills the place.

    Args:
        logits: row 0 after the committed tokens, row i + 1 after draft i.
        processing: of the request.
        paths: draft tokens before each row.
        parents: for each draft the draft before it, -1 where there is none.

    Raises:
        UnusableLogits: a row that can be met is no law.
    """
    try:
        return processing.law_of_paths(logits, paths)
    except UnusableLogits:
        pass  # which row it was, and whether it can be met, is found row by row
    laws: list[Law] = []
    met: list[bool] = []
    for row, path in enumerate(paths):
        before = parents[row - 1] + 1 if row else 0
        met.append(row == 0 or (met[before] and float(laws[before].prob_of(torch.tensor(path[-1:]))) > 0.0))
        try:
            laws.append(processing.law_after(logits[row : row + 1], path) if met[row] else laws[before])
        except UnusableLogits as error:
            raise UnusableLogits(row, error.peak) from error
    return stack_laws(laws)
