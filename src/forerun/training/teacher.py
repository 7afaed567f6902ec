"""The target's side of the loss, and the drafter's answer to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from forerun.drafters import DraftVocabulary
from forerun.drafters.dspark import DSparkNetwork
from forerun.models import TransformersTarget
from forerun.training.blocks import BlockBatch


class Teacher:
    """The target's side of the loss: embeddings of anchors, head rows of the draft vocabulary, laws of positions."""

    def __init__(self, target: TransformersTarget, vocabulary: DraftVocabulary) -> None:
        """Copies the rows it needs in float32."""
        self.vocabulary = vocabulary
        self.embedding = target.embedding_weight.float()
        self.head = target.head_weight[vocabulary.target_ids].float()

    def log_probs(self, batch: BlockBatch) -> Float[Tensor, "rows blocks slots draft_vocab"]:
        """The target's law at every slot, gathered at the draft vocabulary and not renormalised."""
        return functional.linear(batch.final_hidden, self.head) - batch.log_normaliser[..., None]


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DraftStates:
    """The drafter's answer to a teacher-forced batch, before any head; the same network calls as in decoding.

    Attributes:
        backbone: to be multiplied with the target's head.
        markov: of the token before, to be multiplied with the network's own head; the logits are the sum.
        confidence: log-odds of acceptance. That head learns to read the backbone; it does not bend it.
    """

    backbone: Float[Tensor, "rows blocks slots hidden"]
    markov: Float[Tensor, "rows blocks slots rank"]
    confidence: Float[Tensor, "rows blocks slots"]

    @classmethod
    def of(cls, network: DSparkNetwork, teacher: Teacher, batch: BlockBatch) -> DraftStates:
        """Run the network."""
        context = network.context_layers(batch.features, 0)
        anchor_ids = batch.previous[:, :, 0]
        hidden = network.block_hidden(context, teacher.embedding[anchor_ids], batch.anchors, batch.visible)
        previous = teacher.vocabulary.to_draft(batch.previous)
        return cls(
            backbone=hidden,
            markov=network.markov_previous(previous),
            confidence=network.confidence_logits(hidden.detach(), previous),
        )

    def logits(self, network: DSparkNetwork, teacher: Teacher) -> Float[Tensor, "rows blocks slots draft_vocab"]:
        """All of them at once."""
        markov: Tensor = network.markov_next(self.markov)  # through the layer, which may be a packed one
        return functional.linear(self.backbone, teacher.head) + markov


def draft_logits(
    network: DSparkNetwork, teacher: Teacher, batch: BlockBatch
) -> tuple[Float[Tensor, "rows blocks slots draft_vocab"], Float[Tensor, "rows blocks slots"]]:
    """The drafter's logits and confidence log-odds on a teacher-forced batch."""
    states = DraftStates.of(network, teacher, batch)
    return states.logits(network, teacher), states.confidence
