"""What trainer, decoder and checkpoint ask of a drafter that is a trained network.

Logits of a slot are a sum of products, states @ weight.T, over the matrices of ``head_weights``; so a loss can be
computed chunk by chunk from states, and decoding can lay the matrices out for narrow passes. A slot's states are
computed by the same layers in ``teach`` (training: many blocks of a known text at once) and in an ``OpenBlock``
(decoding: one block, while its drafts are drawn); the conformance suite compares the two.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from forerun.drafters.block_inputs import BlockInputs
from forerun.drafters.config import DrafterConfig
from forerun.drafters.declarations import Dependence, Need, Saving
from forerun.drafters.draft_vocabulary import DraftVocabulary
from forerun.models import TransformersTarget

Head = Callable[[Tensor], Tensor]
"""States to logits: one matrix of ``head_weights``, laid out for training or for decoding."""


@final
class PlainHead(nn.Module):
    """A matrix as it is.

    Args:
        weight: of ``head_weights``.
    """

    def __init__(self, weight: Float[Tensor, "draft_vocab width"]) -> None:
        super().__init__()
        self._weight = weight

    def forward(self, states: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch draft_vocab"]:
        """States to logits."""
        return functional.linear(states, self._weight)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Borrowed:
    """What a drafter takes from its target and never changes.

    Attributes:
        embedding: one row per target token.
        head: one row per token of the draft vocabulary.
        final_norm: what stands before the target's head.
        vocabulary: tokens that can be drafted.
    """

    embedding: Float[Tensor, "vocab hidden"]
    head: Float[Tensor, "draft_vocab hidden"]
    final_norm: nn.Module
    vocabulary: DraftVocabulary

    @classmethod
    def of(
        cls,
        target: TransformersTarget,
        vocabulary: DraftVocabulary,
        *,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> Borrowed:
        """Of a target, in this type and on this device."""
        return cls(
            embedding=target.embedding_weight.to(dtype=dtype, device=device),
            head=target.head_weight[vocabulary.target_ids.to(target.device)].to(dtype=dtype, device=device),
            final_norm=copy.deepcopy(target.final_norm).to(dtype=dtype, device=device),
            vocabulary=vocabulary,
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DraftStates:
    """A network's answer to teacher-forced blocks, before any head.

    Attributes:
        terms: one for each matrix of ``head_weights``; logits are the sum of the products.
        confidence: log-odds that the slot's draft is accepted, where the network has such a head.
        candidates: decoding draws from this many tokens, those with the largest first product; ``None`` for all.
        own_heads: every slot has a head of its own: there is one term, and matrix k turns its slot k.
    """

    terms: tuple[Float[Tensor, "rows blocks slots _"], ...]
    confidence: Float[Tensor, "rows blocks slots"] | None = None
    candidates: int | None = None
    own_heads: bool = False

    def logits(self, heads: Sequence[Head]) -> Float[Tensor, "rows blocks slots draft_vocab"]:
        """All of them at once, of every token that can be drafted."""
        if self.own_heads:
            (states,) = self.terms
            return torch.stack([head(one) for one, head in zip(states.unbind(2), heads, strict=True)], dim=2)
        products = [head(states) for states, head in zip(self.terms, heads, strict=True)]
        return sum(products[1:], products[0])

    def realised_logits(self, heads: Sequence[Head]) -> Float[Tensor, "rows blocks slots draft_vocab"]:
        """Logits of the law that decoding draws from."""
        logits = self.logits(heads)
        if self.candidates is None:
            return logits
        listed = heads[0](self.terms[0]).topk(self.candidates).indices
        return torch.full_like(logits, -torch.inf).scatter(-1, listed, logits.gather(-1, listed))


class OpenBlock(ABC):
    """One block whose drafts are being drawn."""

    @abstractmethod
    def logits(self, drafted: Int[Tensor, " drafted"]) -> Float[Tensor, " draft_vocab"]:
        """Logits of the next slot, in draft numbering, without reading anything from the device.

        Args:
            drafted: target ids of the drafts so far, in order; asked for 0, 1, 2, ... drafts, once each.
        """

    def confidence(self) -> float | None:
        """Log-odds that the draft of the slot asked for last is accepted, known before it is drawn.

        ``None`` where the network has no head for it.
        """
        return None


@final
class KnownBlock(OpenBlock):
    """A block whose logits do not depend on what is drawn.

    Args:
        logits: of every slot that can be asked for.
    """

    def __init__(self, logits: Float[Tensor, "slots draft_vocab"]) -> None:
        self.rows = logits

    def logits(self, drafted: Int[Tensor, " drafted"]) -> Float[Tensor, " draft_vocab"]:
        """See :class:`OpenBlock`."""
        return self.rows[len(drafted)]


class DraftContext(ABC):
    """What a network remembers of one request's committed tokens."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Tokens taken in."""

    @abstractmethod
    def extend(self, token_ids: Int[Tensor, " length"], features: Float[Tensor, "length layers hidden"]) -> None:
        """Take in committed tokens that the target has processed, with its features."""

    @abstractmethod
    def open(self, anchor: int, horizon: int) -> OpenBlock:
        """Begin a block after the anchor, which stands at position ``length``.

        Args:
            anchor: the last committed token.
            horizon: slots that will be asked for at most.
        """


class DraftNetwork(nn.Module, ABC):
    """The trainable part of a drafter, written once for training and decoding."""

    @property
    @abstractmethod
    def dependence(self) -> Dependence:
        """How a draft's law depends on the drafts before it in the block."""

    @property
    @abstractmethod
    def prefix_consistent(self) -> bool:
        """Whether a shorter horizon leaves the laws of the earlier drafts unchanged."""

    @property
    @abstractmethod
    def saving(self) -> Saving:
        """What a shorter horizon saves."""

    @property
    @abstractmethod
    def needs(self) -> frozenset[Need]:
        """What it takes from the target."""

    @property
    def candidates(self) -> int | None:
        """`DraftStates.candidates` of every slot."""
        return None

    @property
    @abstractmethod
    def config(self) -> DrafterConfig:
        """Shape of the network."""

    @abstractmethod
    def initialise(
        self, target: TransformersTarget, vocabulary: DraftVocabulary, *, generator: torch.Generator
    ) -> None:
        """Set the starting weights.

        Args:
            target: where a part begins as the target's.
            vocabulary: the target tokens that the rows of a head of its own stand for.
            generator: source of every random number.
        """

    def calibrate(self, temperatures: Float[Tensor, " slots"]) -> None:
        """Take over what the confidence of each slot is divided by in decoding; only for networks that have one."""
        raise AssertionError(f"{type(self).__name__} predicts no acceptance")

    @abstractmethod
    def head_weights(self, borrowed: Borrowed) -> tuple[Float[Tensor, "draft_vocab _"], ...]:
        """Matrices that turn a slot's states into logits; one for each slot where slots have heads of their own."""

    @abstractmethod
    def teach(self, inputs: BlockInputs, borrowed: Borrowed) -> DraftStates:
        """States of every slot, each slot given the text before it."""

    @abstractmethod
    def new_context(self, borrowed: Borrowed, heads: Sequence[Head]) -> DraftContext:
        """Start decoding a request.

        Args:
            borrowed: of the target, in the network's type.
            heads: ``head_weights`` as functions.
        """
