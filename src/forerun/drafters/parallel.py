"""Networks that run a whole block through the parallel backbone once a round.

The slots of a block see each other, so all of them run whatever the horizon: the law of a draft does not depend on how
many follow it, and a shorter horizon saves head rows, what comes after the backbone, and verification.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Collection
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from forerun.drafters.backbone import Around, Backbone, BackboneContext
from forerun.drafters.declarations import Need, Saving
from forerun.drafters.network import DraftContext, DraftNetwork, OpenBlock
from forerun.drafters.starting_weights import draw_weights
from forerun.models import TransformersTarget

BlockOpener = Callable[[int, Float[Tensor, "slots hidden"]], OpenBlock]
"""From the anchor and the hidden states of the slots that may be asked for."""


class ParallelNetwork(DraftNetwork, ABC):
    """A backbone, and what its subclass puts behind it."""

    backbone: Backbone

    prefix_consistent = True
    saving = Saving.BOTH
    needs = frozenset({Need.FEATURES, Need.EMBEDDING, Need.HEAD})

    def draw(self, target: TransformersTarget, *, generator: torch.Generator, zeros: Collection[str]) -> None:
        """Starting weights; the final norm begins as the target's, so that slots speak to its head.

        Args:
            target: to draft for.
            generator: source of every random number.
            zeros: names of parameters that begin as 0.
        """
        draw_weights(self, generator=generator, zeros=zeros)
        with torch.no_grad():
            self.backbone.final_norm.weight.copy_(target.final_norm_weight)


@final
class ParallelContext(DraftContext):
    """The backbone's keys and values for one request.

    Args:
        backbone: of the request.
        slots: inputs of a block.
        first: the first of them that predicts: 1 where the anchor's own slot is not scored.
        open_block: what comes after the backbone.
        arounds: of the backbone's layers.
    """

    def __init__(
        self,
        backbone: BackboneContext,
        *,
        slots: int,
        first: int,
        open_block: BlockOpener,
        arounds: list[tuple[Around, Around]] | None = None,
    ) -> None:
        self._backbone = backbone
        self._slots, self._first = slots, first
        self._open_block, self._arounds = open_block, arounds

    @property
    def length(self) -> int:
        """Tokens taken in."""
        return self._backbone.length

    def extend(self, token_ids: Int[Tensor, " length"], features: Float[Tensor, "length layers hidden"]) -> None:
        """See :class:`DraftContext`."""
        self._backbone.extend(features)

    def open(self, anchor: int, horizon: int) -> OpenBlock:
        """See :class:`DraftContext`."""
        hidden = self._backbone.block(anchor, self._slots, self._arounds)
        return self._open_block(anchor, hidden[self._first : self._first + horizon])
