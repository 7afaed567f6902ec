"""DSpark: the parallel backbone once a round, then a Markov head from draft to draft, and a confidence head.

Every slot predicts, the anchor's too: ``block_size`` slots give as many drafts. The whole block passes through the
backbone whatever the horizon, because its slots see each other; so the law of a draft does not depend on how many
follow it, and a shorter horizon saves head rows, Markov steps and verification. (DSpark, arXiv 2607.05147.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, final

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from forerun.drafters.attention import LayerShape
from forerun.drafters.backbone import Backbone, BackboneContext
from forerun.drafters.block_inputs import BlockInputs
from forerun.drafters.config import DrafterConfig
from forerun.drafters.declarations import Dependence
from forerun.drafters.draft_vocabulary import DraftVocabulary
from forerun.drafters.markov import MarkovKind, markov_head
from forerun.drafters.network import Borrowed, DraftStates, Head, OpenBlock
from forerun.drafters.parallel import ParallelContext, ParallelNetwork
from forerun.models import TransformersTarget


@final
class DSparkConfig(DrafterConfig):
    """Shape of the network and of what it reads from its target.

    Attributes:
        num_layers: of the parallel backbone.
        layer: their sizes.
        markov_head: kind of correction by the token before.
        markov_rank: its width.
        confidence_head: whether acceptance is predicted.
        confidence_reads_markov: whether that prediction sees the token before.
    """

    architecture: Literal["dspark"] = "dspark"
    num_layers: int = Field(gt=0)
    layer: LayerShape
    markov_head: MarkovKind
    markov_rank: int = Field(gt=0)
    confidence_head: bool
    confidence_reads_markov: bool


@final
class DSparkNetwork(ParallelNetwork):
    """Trainable part of the drafter.

    Args:
        config: shapes.
    """

    def __init__(self, config: DSparkConfig) -> None:
        super().__init__()
        self._config = config
        hidden, rank = config.hidden_size, config.markov_rank
        self.backbone = Backbone(
            hidden_size=hidden,
            num_captured=len(config.captured_layers),
            num_layers=config.num_layers,
            shape=config.layer,
        )
        # one extra row for a preceding token outside the draft vocabulary
        self.markov_previous = nn.Embedding(config.draft_vocab_size + 1, rank)
        self.markov = markov_head(config.markov_head, rank, hidden)
        self.markov_next = nn.Parameter(torch.zeros(config.draft_vocab_size, rank))
        if config.confidence_head:
            self.confidence = nn.Linear(hidden + rank if config.confidence_reads_markov else hidden, 1)
            # set by calibration after training: decoding divides the log-odds of slot k by number k
            self.register_buffer("confidence_temperatures", torch.ones(config.block_size))
            self.confidence_temperatures: Tensor

    @property
    def config(self) -> DSparkConfig:
        """Shapes."""
        return self._config

    @property
    def dependence(self) -> Dependence:
        """On the token before; the recurrent head carries all of them."""
        return Dependence.FULL if self._config.markov_head == "rnn" else Dependence.FIRST_ORDER

    def initialise(
        self, target: TransformersTarget, vocabulary: DraftVocabulary, *, generator: torch.Generator
    ) -> None:
        """The Markov term starts as no correction, the final norm as the target's, so that slots speak to its head."""
        self.draw(target, generator=generator, zeros=("markov_next",))

    def calibrate(self, temperatures: Float[Tensor, " slots"]) -> None:
        """See :class:`DraftNetwork`."""
        self.confidence_temperatures.copy_(temperatures)

    def head_weights(self, borrowed: Borrowed) -> tuple[Float[Tensor, "draft_vocab _"], ...]:
        """The target's head for the backbone, W2 for the Markov term."""
        return borrowed.head, self.markov_next

    def teach(self, inputs: BlockInputs, borrowed: Borrowed) -> DraftStates:
        """See :class:`DraftNetwork`. The confidence head learns to read the backbone; it does not bend it."""
        hidden = self.backbone.taught(inputs, borrowed.embedding, slots=inputs.slots)
        before = self.markov_previous(borrowed.vocabulary.to_draft(inputs.previous))
        confidence = self.confidence_logits(hidden.detach(), before) if self._config.confidence_head else None
        return DraftStates(terms=(hidden, self.markov.run(before, hidden)), confidence=confidence)

    def confidence_logits(
        self, hidden: Float[Tensor, "*batch hidden"], before: Float[Tensor, "*batch rank"]
    ) -> Float[Tensor, "*batch"]:
        """Log-odds, as trained, that these slots' drafts are accepted; from what is known before they are drawn."""
        read = torch.cat([hidden, before], dim=-1) if self._config.confidence_reads_markov else hidden
        logits: Tensor = self.confidence(read)
        return logits[..., 0]

    def new_context(self, borrowed: Borrowed, heads: Sequence[Head]) -> ParallelContext:
        """See :class:`DraftNetwork`."""

        def open_block(anchor: int, hidden: Tensor) -> DSparkBlock:
            return DSparkBlock(self, borrowed, heads, anchor, hidden)

        return ParallelContext(
            BackboneContext(self.backbone, borrowed.embedding),
            slots=self._config.block_size,
            first=0,
            open_block=open_block,
        )


@final
class DSparkBlock(OpenBlock):
    """Slots of the backbone, and the state that the Markov head carries.

    Args:
        network: of the drafter.
        borrowed: of the target.
        heads: as functions.
        anchor: token before the first slot.
        hidden: of the slots.
    """

    def __init__(
        self,
        network: DSparkNetwork,
        borrowed: Borrowed,
        heads: Sequence[Head],
        anchor: int,
        hidden: Float[Tensor, "slots hidden"],
    ) -> None:
        self._network, self._vocabulary, self._markov_next = network, borrowed.vocabulary, heads[1]
        self._anchor, self._hidden = anchor, hidden
        self._backbone_logits = heads[0](hidden)  # (slots, draft_vocab): known before anything is drafted
        self._carried = hidden.new_zeros(network.config.markov_rank)
        self._slot = 0
        self._before = hidden.new_zeros(network.config.markov_rank)

    def logits(self, drafted: Int[Tensor, " drafted"]) -> Float[Tensor, " draft_vocab"]:
        """See :class:`OpenBlock`."""
        slot = len(drafted)
        token = drafted[-1] if slot else torch.tensor(self._anchor)
        before = self._network.markov_previous(self._vocabulary.to_draft(token.to(self._hidden.device)))
        self._carried, state = self._network.markov.step(self._carried, before, self._hidden[slot])
        self._slot, self._before = slot, before
        logits: Tensor = self._backbone_logits[slot] + self._markov_next(state[None])[0]
        return logits

    def confidence(self) -> float | None:
        """See :class:`OpenBlock`; after calibration."""
        network = self._network
        if not network.config.confidence_head:
            return None
        logits = network.confidence_logits(self._hidden[self._slot], self._before)
        return float(logits / network.confidence_temperatures[self._slot])
