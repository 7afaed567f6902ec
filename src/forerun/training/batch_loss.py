"""What one batch costs under an objective, from all logits at once or chunk by chunk from hidden states.

Both ways give the same numbers up to rounding. Knows nothing of optimisers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from forerun import losses
from forerun.drafters import DraftNetwork, DraftStates, IndependentNetwork, PlainHead
from forerun.losses import Divergence, MaskedSum, Moment, Objective
from forerun.losses.fused import Projection, TargetStates, fused_sum
from forerun.training.blocks import BlockBatch
from forerun.training.candidates import candidate_blocks
from forerun.training.teacher import Teacher

DRAFT_LAWS = ("vocabulary", "backbone", "candidates")


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BatchLoss:
    """One batch, scored.

    Attributes:
        objective: weighted sum of the objective over the positions it keeps; carries the gradient.
        acceptance: of every valid position, without gradient.
        confidence: log-odds that the confidence head gives it, where there is one.
        moment: with the batch's own acceptance by position.
        selector: weighted sum of the path selector's cross-entropy over the positions whose token is listed.
    """

    objective: MaskedSum
    acceptance: Float[Tensor, "rows blocks slots"]
    confidence: Float[Tensor, "rows blocks slots"] | None
    moment: Moment
    selector: MaskedSum | None = None


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
        one_by_one: the backward pass goes through an independent network's heads one after another.
        draft_law: which law the objective and the acceptance are about; see `TrainConfig`.
        selector: whether the path selector's cross-entropy is wanted, too.
        inject: labels that are not listed take the last candidate's place.
    """

    network: DraftNetwork
    teacher: Teacher
    objective: Objective
    weights: Float[Tensor, " slots"]
    total_steps: int
    fused: bool
    one_by_one: bool = False
    draft_law: str = "vocabulary"
    selector: bool = False
    inject: bool = False

    def score(self, batch: BlockBatch, *, step: int, settled: float) -> BatchLoss:
        """Loss and acceptance of a batch.

        Args:
            batch: teacher-forced blocks.
            step: updates made so far.
            settled: `AcceptanceHistory.settled` of them.
        """
        states = self._states(batch)
        if self.draft_law != "candidates" and not self.selector:
            return self._score(states, batch, step, settled)
        lists = candidate_blocks(states, self._head_weights(), self.teacher, batch, inject=self.inject)
        if self.draft_law == "candidates":
            scored = self._from_blocks(lists, states.confidence, step, settled)
        else:
            scored = self._score(states, batch, step, settled)
        if not self.selector:
            return scored
        values = losses.cross_entropy(lists.labels, lists.draft_logits)
        listed = losses.masked_sum(values, batch.valid & (lists.labels >= 0), self.weights)
        return replace(scored, selector=listed)

    def _score(self, states: DraftStates, batch: BlockBatch, step: int, settled: float) -> BatchLoss:
        if self.draft_law == "backbone":
            states = replace(states, terms=states.terms[:1])
        divergence = self.objective.divergence(step=step, total_steps=self.total_steps, settled=settled)
        if self.fused and divergence is not None:
            return self._from_states(states, batch, divergence, step, settled)
        return self._from_logits(states, batch, step, settled)

    def _from_states(
        self, states: DraftStates, batch: BlockBatch, divergence: Divergence, step: int, settled: float
    ) -> BatchLoss:
        labels = losses.draft_labels(batch.labels, self.teacher.vocabulary.target_ids)
        kept = self.objective.kept_labels(labels)
        weights, pieces = self.weights * kept, []
        for slots, projections in self._projections(states):
            pieces.append(
                fused_sum(
                    projections,
                    TargetStates(
                        hidden=batch.final_hidden[:, :, slots],
                        weight=self.teacher.head,
                        log_normaliser=batch.log_normaliser[:, :, slots],
                    ),
                    divergence,
                    weights=weights[:, :, slots],
                    labels=labels[:, :, slots],
                    mask=batch.valid[:, :, slots],  # acceptance is wanted where the objective keeps nothing, too
                )
            )
        acceptance = torch.cat([piece.rows.acceptances for piece in pieces], dim=2)
        return BatchLoss(
            objective=MaskedSum(
                total=torch.stack([piece.total for piece in pieces]).sum(), count=(batch.valid & kept).sum()
            ),
            acceptance=acceptance,
            confidence=states.confidence,
            moment=self._moment(acceptance, batch.valid, step, settled),
        )

    def _projections(self, states: DraftStates) -> list[tuple[slice, list[Projection]]]:
        """What makes the logits of which slots: the same matrices for all of them, or one for each."""
        weights = self._weights_of(states)
        if states.own_heads:
            (hidden,) = states.terms
            parts = [slice(slot, slot + 1) for slot in range(hidden.shape[2])]
            return [
                (part, [Projection(hidden=hidden[:, :, part], weight=weight)])
                for part, weight in zip(parts, weights, strict=True)
            ]
        projections = [
            Projection(hidden=hidden, weight=weight) for hidden, weight in zip(states.terms, weights, strict=True)
        ]
        return [(slice(None), projections)]

    def _from_logits(self, states: DraftStates, batch: BlockBatch, step: int, settled: float) -> BatchLoss:
        heads = [PlainHead(weight) for weight in self._weights_of(states)]
        with torch.no_grad():
            target_log_probs = self.teacher.log_probs(batch)
        blocks = losses.Blocks(
            target_log_probs=target_log_probs,
            draft_logits=states.logits(heads),
            labels=losses.draft_labels(batch.labels, self.teacher.vocabulary.target_ids),
            mask=batch.valid,
        )
        return self._from_blocks(blocks, states.confidence, step, settled)

    def _from_blocks(self, blocks: losses.Blocks, confidence: Tensor | None, step: int, settled: float) -> BatchLoss:
        # detached: a label, not a path for gradients
        acceptance = losses.acceptance(blocks.target_log_probs, blocks.draft_logits)
        moment = self._moment(acceptance, blocks.mask, step, settled)
        values = self.objective.values(blocks, moment)
        return BatchLoss(
            objective=losses.masked_sum(values, blocks.mask & self.objective.kept(blocks), self.weights),
            acceptance=acceptance,
            confidence=confidence,
            moment=moment,
        )

    def _states(self, batch: BlockBatch) -> DraftStates:
        if self.one_by_one:
            assert isinstance(self.network, IndependentNetwork), "checked before training"
            return self.network.teach_one_by_one(batch.inputs, self.teacher.borrowed)
        return self.network.teach(batch.inputs, self.teacher.borrowed)

    def _head_weights(self) -> tuple[Tensor, ...]:
        return self.network.head_weights(self.teacher.borrowed)

    def _weights_of(self, states: DraftStates) -> tuple[Tensor, ...]:
        weights = self._head_weights()
        return weights if states.own_heads else weights[: len(states.terms)]

    def _moment(self, acceptance: Tensor, valid: Tensor, step: int, settled: float) -> Moment:
        return Moment(
            step=step,
            total_steps=self.total_steps,
            position_acceptance=losses.masked_sum(acceptance, valid, by_position=True).mean(),
            settled=settled,
        )
