"""DFlash: all drafts of a block at once, from a block of masks over the target's features (arXiv 2602.06036).

The anchor stands in the block's first slot and is not scored; the mask in slot k predicts the token k places after the
anchor. So ``block_size`` drafts need ``block_size + 1`` inputs, and the number that DFlash's own files call
``block_size`` counts the anchor: 16 there is 15 here. Drafts do not depend on each other: sampled one by one they have
a product law; the released drafters propose the most probable tokens instead (`ProposalPolicy.ARGMAX`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, final

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from forerun.drafters.attention import LayerShape
from forerun.drafters.backbone import Backbone, BackboneContext
from forerun.drafters.block_inputs import BlockInputs
from forerun.drafters.config import DrafterConfig
from forerun.drafters.declarations import Dependence
from forerun.drafters.draft_vocabulary import DraftVocabulary
from forerun.drafters.network import Borrowed, DraftStates, Head, KnownBlock
from forerun.drafters.parallel import ParallelContext, ParallelNetwork
from forerun.models import TransformersTarget


@final
class DFlashConfig(DrafterConfig):
    """Shape of the network and of what it reads from its target.

    Attributes:
        block_size: drafts, which is the number of masks; the anchor's slot comes on top.
        num_layers: of the parallel backbone.
        layer: their sizes.
    """

    architecture: Literal["dflash"] = "dflash"
    num_layers: int = Field(gt=0)
    layer: LayerShape


@final
class DFlashNetwork(ParallelNetwork):
    """Trainable part of the drafter: the backbone alone.

    Args:
        config: shapes.
    """

    dependence = Dependence.NONE

    def __init__(self, config: DFlashConfig) -> None:
        super().__init__()
        self._config = config
        self.backbone = Backbone(
            hidden_size=config.hidden_size,
            num_captured=len(config.captured_layers),
            num_layers=config.num_layers,
            shape=config.layer,
        )

    @property
    def config(self) -> DFlashConfig:
        """Shapes."""
        return self._config

    def initialise(
        self, target: TransformersTarget, vocabulary: DraftVocabulary, *, generator: torch.Generator
    ) -> None:
        """See :class:`ParallelNetwork`."""
        self.draw(target, generator=generator, zeros=())

    def head_weights(self, borrowed: Borrowed) -> tuple[Float[Tensor, "draft_vocab hidden"], ...]:
        """The target's head."""
        return (borrowed.head,)

    def teach(self, inputs: BlockInputs, borrowed: Borrowed) -> DraftStates:
        """See :class:`DraftNetwork`."""
        hidden = self.backbone.taught(inputs, borrowed.embedding, slots=inputs.slots + 1)
        return DraftStates(terms=(hidden[:, :, 1:],))

    def new_context(self, borrowed: Borrowed, heads: Sequence[Head]) -> ParallelContext:
        """See :class:`DraftNetwork`."""

        def open_block(anchor: int, hidden: Tensor) -> KnownBlock:
            return KnownBlock(heads[0](hidden))

        return ParallelContext(
            BackboneContext(self.backbone, borrowed.embedding),
            slots=self._config.block_size + 1,
            first=1,
            open_block=open_block,
        )
