"""DFlash2: DFlash with mixing of neighbouring slots, and a path selector over each slot's best tokens.

The selector knows the token a before a slot. With U the backbone's logits and h the slot's hidden state,

    S(a, b) = U(b) + < A(a) * H h, B(b) >

and the draft is drawn from the softmax of S over the 16 tokens b with the largest U; every other token has probability
zero, and that is the law verification gets. Which tokens are listed depends on U alone, so the law of a draft depends
on the token just before it and on nothing else of the block. (Architecture as released by z-lab/dflash; its training
objective is unpublished: `TrainConfig.draft_law` and ``selector_weight`` say what is offered here.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, final

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn

from forerun.drafters.attention import LayerShape
from forerun.drafters.backbone import Around, Backbone, BackboneContext
from forerun.drafters.block_convolution import BlockConvolution
from forerun.drafters.block_inputs import BlockInputs
from forerun.drafters.config import DrafterConfig
from forerun.drafters.declarations import Dependence
from forerun.drafters.draft_vocabulary import DraftVocabulary
from forerun.drafters.network import Borrowed, DraftStates, Head, OpenBlock
from forerun.drafters.parallel import ParallelContext, ParallelNetwork
from forerun.models import TransformersTarget


@final
class DFlash2Config(DrafterConfig):
    """Shape of the network and of what it reads from its target.

    Attributes:
        block_size: drafts, which is the number of masks; the anchor's slot comes on top (8 in z-lab's files is 7 here).
        num_layers: of the parallel backbone.
        layer: their sizes.
        convolution_group_size: channels that share a predicted correction of the convolution.
        selector_rank: width of the selector's codebooks.
        candidates: tokens that a slot's draft is drawn from.
    """

    architecture: Literal["dflash2"] = "dflash2"
    num_layers: int = Field(gt=0)
    layer: LayerShape
    convolution_group_size: int = Field(gt=0)
    selector_rank: int = Field(gt=0)
    candidates: int = Field(gt=0)

    @model_validator(mode="after")
    def _selector_fits(self) -> DFlash2Config:
        if self.hidden_size % self.convolution_group_size:
            raise ValueError(
                f"hidden_size {self.hidden_size} is not a multiple of convolution_group_size "
                f"{self.convolution_group_size}"
            )
        if self.candidates > self.draft_vocab_size:
            raise ValueError(f"candidates {self.candidates} exceeds draft_vocab_size {self.draft_vocab_size}")
        return self


@final
class DFlash2Network(ParallelNetwork):
    """Trainable part of the drafter.

    Args:
        config: shapes.
    """

    dependence = Dependence.FIRST_ORDER

    def __init__(self, config: DFlash2Config) -> None:
        super().__init__()
        self._config = config
        hidden, rank = config.hidden_size, config.selector_rank
        self.backbone = Backbone(
            hidden_size=hidden,
            num_captured=len(config.captured_layers),
            num_layers=config.num_layers,
            shape=config.layer,
        )
        self.convolutions = nn.ModuleList(
            BlockConvolution(hidden, config.convolution_group_size) for _ in range(2 * config.num_layers)
        )
        # one extra row for a preceding token outside the draft vocabulary
        self.predecessors = nn.Embedding(config.draft_vocab_size + 1, rank)
        self.selector = nn.Linear(hidden, rank, bias=False)
        self.successors = nn.Parameter(torch.zeros(config.draft_vocab_size, rank))

    @property
    def config(self) -> DFlash2Config:
        """Shapes."""
        return self._config

    @property
    def candidates(self) -> int:
        """As configured."""
        return self._config.candidates

    def initialise(
        self, target: TransformersTarget, vocabulary: DraftVocabulary, *, generator: torch.Generator
    ) -> None:
        """It begins as DFlash: convolutions pass everything through, and the selector says nothing."""
        silent = {name for name, _ in self.named_parameters() if name.startswith("convolutions.")} | {"successors"}
        self.draw(target, generator=generator, zeros=silent)

    def head_weights(self, borrowed: Borrowed) -> tuple[Float[Tensor, "draft_vocab _"], ...]:
        """The target's head for U, the codebook B for the selector's term."""
        return borrowed.head, self.successors

    def teach(self, inputs: BlockInputs, borrowed: Borrowed) -> DraftStates:
        """See :class:`DraftNetwork`."""
        slots = inputs.slots + 1
        hidden = self.backbone.taught(inputs, borrowed.embedding, slots=slots, arounds=self._arounds(slots))[:, :, 1:]
        pair = self.pair_states(borrowed.vocabulary.to_draft(inputs.previous), self.selector(hidden))
        return DraftStates(terms=(hidden, pair), candidates=self.candidates)

    def pair_states(
        self, before: Int[Tensor, "*batch"], selected: Float[Tensor, "*batch rank"]
    ) -> Float[Tensor, "*batch rank"]:
        """``A(a) * H h``: what the codebook B is read with.

        Args:
            before: draft ids of the tokens before.
            selected: ``H h`` of the slots.
        """
        states: Tensor = self.predecessors(before) * selected
        return states

    def new_context(self, borrowed: Borrowed, heads: Sequence[Head]) -> ParallelContext:
        """See :class:`DraftNetwork`."""

        def open_block(anchor: int, hidden: Tensor) -> DFlash2Block:
            return DFlash2Block(self, borrowed, heads[0](hidden), anchor, self.selector(hidden))

        slots = self._config.block_size + 1
        return ParallelContext(
            BackboneContext(self.backbone, borrowed.embedding),
            slots=slots,
            first=1,
            open_block=open_block,
            arounds=self._arounds(slots),
        )

    def _arounds(self, slots: int) -> list[tuple[Around, Around]]:
        runs = [each.around(slots) for each in self.convolutions if isinstance(each, BlockConvolution)]
        return list(zip(runs[::2], runs[1::2], strict=True))


@final
class DFlash2Block(OpenBlock):
    """Lists of candidates, scored as the path grows.

    Args:
        network: of the drafter.
        borrowed: of the target.
        unary: U of the slots.
        anchor: token before the first slot.
        selected: ``H h`` of the slots.
    """

    def __init__(
        self,
        network: DFlash2Network,
        borrowed: Borrowed,
        unary: Float[Tensor, "slots draft_vocab"],
        anchor: int,
        selected: Float[Tensor, "slots rank"],
    ) -> None:
        self._network, self._vocabulary = network, borrowed.vocabulary
        self._anchor, self._selected = anchor, selected
        self._scores, self._listed = unary.topk(network.candidates)

    def logits(self, drafted: Int[Tensor, " drafted"]) -> Float[Tensor, " draft_vocab"]:
        """See :class:`OpenBlock`; minus infinity for tokens that are not listed."""
        slot = len(drafted)
        listed = self._listed[slot]
        token = drafted[-1] if slot else torch.tensor(self._anchor)
        before = self._vocabulary.to_draft(token.to(listed.device))
        pair = self._network.pair_states(before, self._selected[slot])
        scores = self._scores[slot] + self._network.successors[listed] @ pair
        nothing = scores.new_full((self._network.config.draft_vocab_size,), -torch.inf)
        return nothing.scatter(0, listed, scores)
