"""The target's side of the loss, and the drafter's answer to it."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from forerun.drafters import Borrowed, DraftNetwork, DraftStates, DraftVocabulary, PlainHead
from forerun.models import TransformersTarget
from forerun.training.blocks import BlockBatch


class Teacher:
    """Laws of positions, and what the drafter borrows, in float32.

    Args:
        target: the model to draft for.
        vocabulary: tokens that can be drafted.
    """

    def __init__(self, target: TransformersTarget, vocabulary: DraftVocabulary) -> None:
        """Copies the rows it needs."""
        self.vocabulary = vocabulary
        self.borrowed = Borrowed.of(target, vocabulary, dtype=torch.float32, device=target.device)

    @property
    def head(self) -> Float[Tensor, "draft_vocab hidden"]:
        """The target's, at the draft vocabulary."""
        return self.borrowed.head

    def log_probs(self, batch: BlockBatch) -> Float[Tensor, "rows blocks slots draft_vocab"]:
        """The target's law at every slot, gathered at the draft vocabulary and not renormalised."""
        return functional.linear(batch.final_hidden, self.head) - batch.log_normaliser[..., None]


def realised_logits(
    network: DraftNetwork, teacher: Teacher, batch: BlockBatch
) -> tuple[Float[Tensor, "rows blocks slots draft_vocab"], DraftStates]:
    """Logits of the laws that decoding draws from, on a teacher-forced batch, and the states behind them."""
    states = network.teach(batch.inputs, teacher.borrowed)
    heads = [PlainHead(weight) for weight in network.head_weights(teacher.borrowed)]
    return states.realised_logits(heads), states
