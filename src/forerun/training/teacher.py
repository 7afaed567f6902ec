"""The target's side of the loss, and the drafter's answer to it."""

from __future__ import annotations

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


def draft_logits(
    network: DSparkNetwork, teacher: Teacher, batch: BlockBatch
) -> tuple[Float[Tensor, "rows blocks slots draft_vocab"], Float[Tensor, "rows blocks slots"]]:
    """The drafter's logits and confidence log-odds on a teacher-forced batch; the same network calls as in decoding."""
    context = network.context_layers(batch.features, 0)
    anchor_ids = batch.previous[:, :, 0]
    hidden = network.block_hidden(context, teacher.embedding[anchor_ids], batch.anchors, batch.visible)
    previous = teacher.vocabulary.to_draft(batch.previous)
    logits = functional.linear(hidden, teacher.head) + network.markov_logits(previous)
    # The confidence head learns to read the backbone; it does not bend it.
    return logits, network.confidence_logits(hidden.detach(), previous)
