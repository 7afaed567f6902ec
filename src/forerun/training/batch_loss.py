"""What one batch costs under an objective, from all logits at once or chunk by chunk from hidden states.

Both ways give the same numbers up to rounding. Knows nothing of optimisers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from forerun import losses
from forerun.drafters import DraftNetwork, DraftStates, PlainHead
from forerun.losses import Divergence, MaskedSum, Moment, Objective
from forerun.losses.fused import Projection, TargetStates, fused_sum
from forerun.training.blocks import BlockBatch
from forerun.training.teacher import Teacher


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BatchLoss:
    """One batch, scored.

    Attributes:
        objective: weighted sum of the objective over the positions it keeps; carries the gradient.
        acceptance: of every valid position, without gradient.
        confidence: log-odds that the confidence head gives it, where there is one.
        moment: with the batch's own acceptance by position.
    """

    objective: MaskedSum
    acceptance: Float[Tensor, "rows blocks slots"]
    confidence: Float[Tensor, "rows blocks slots"] | None
    moment: Moment


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scorer:
    """What all batches of a run are scored with.

    Attributes:
        network: the drafter.
        teacher: the target's side.
        objective: of a position.
        weights: of the places in a block.
        total_steps: of the run.
        fused: chunk by chunk, where the objective has such a form (`Objective.divergence`).
    """

    network: DraftNetwork
    teacher: Teacher
    objective: Objective
    weights: Float[Tensor, " slots"]
    total_steps: int
    fused: bool

    def score(self, batch: BlockBatch, *, step: int, settled: float) -> BatchLoss:
        """Loss and acceptance of a batch.

        Args:
            batch: teacher-forced blocks.
            step: updates made so far.
            settled: `AcceptanceHistory.settled` of them.
        """
        states = self.network.teach(batch.inputs, self.teacher.borrowed)
        divergence = self.objective.divergence(step=step, total_steps=self.total_steps, settled=settled)
        if self.fused and divergence is not None:
            return self._from_states(states, batch, divergence, step, settled)
        return self._from_logits(states, batch, step, settled)

    def _from_states(
        self, states: DraftStates, batch: BlockBatch, divergence: Divergence, step: int, settled: float
    ) -> BatchLoss:
        labels = losses.draft_labels(batch.labels, self.teacher.vocabulary.target_ids)
        kept = self.objective.kept_labels(labels)
        found = fused_sum(
            [
                Projection(hidden=hidden, weight=weight)
                for hidden, weight in zip(states.terms, self._head_weights(), strict=True)
            ],
            TargetStates(hidden=batch.final_hidden, weight=self.teacher.head, log_normaliser=batch.log_normaliser),
            divergence,
            weights=self.weights * kept,
            labels=labels,
            mask=batch.valid,  # acceptance is wanted where the objective keeps nothing, too
        )
        return BatchLoss(
            objective=MaskedSum(total=found.total, count=(batch.valid & kept).sum()),
            acceptance=found.rows.acceptances,
            confidence=states.confidence,
            moment=self._moment(found.rows.acceptances, batch, step, settled),
        )

    def _from_logits(self, states: DraftStates, batch: BlockBatch, step: int, settled: float) -> BatchLoss:
        logits = states.logits([PlainHead(weight) for weight in self._head_weights()])
        with torch.no_grad():
            target_log_probs = self.teacher.log_probs(batch)
        acceptance = losses.acceptance(target_log_probs, logits)  # detached: a label, not a path for gradients
        moment = self._moment(acceptance, batch, step, settled)
        blocks = losses.Blocks(
            target_log_probs=target_log_probs,
            draft_logits=logits,
            labels=losses.draft_labels(batch.labels, self.teacher.vocabulary.target_ids),
            mask=batch.valid,
        )
        values = self.objective.values(blocks, moment)
        return BatchLoss(
            objective=losses.masked_sum(values, batch.valid & self.objective.kept(blocks), self.weights),
            acceptance=acceptance,
            confidence=states.confidence,
            moment=moment,
        )

    def _head_weights(self) -> tuple[Tensor, ...]:
        return self.network.head_weights(self.teacher.borrowed)

    def _moment(self, acceptance: Tensor, batch: BlockBatch, step: int, settled: float) -> Moment:
        return Moment(
            step=step,
            total_steps=self.total_steps,
            position_acceptance=losses.masked_sum(acceptance, batch.valid, by_position=True).mean(),
            settled=settled,
        )
