"""What a training step minimises, as an object that a recipe can hold."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from enum import Enum
from typing import ClassVar, Literal, final

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from forerun.losses.divergence import Divergence

PositionWeights = Literal["bound", "exp", "geometric", "uniform"]


@final
class Need(Enum):
    """What an objective has to be given besides the draft's logits."""

    TARGET_LAW = "full target law"
    DATA_TOKEN = "data token"
    TARGET_ROLLOUT = "target rollout"
    """Data tokens that were *sampled from these target laws* (temperature 1, nothing truncated), not any text."""
    DRAFT_ROLLOUT = "draft rollout"
    """Blocks that the draft wrote, with what the target accepted of them."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Teacher-forced blocks: everything that an objective may look at.

    Attributes:
        target_log_probs: the target's law gathered at the draft vocabulary, not renormalised.
        draft_logits: of the drafter.
        labels: data tokens in draft numbering, `OUTSIDE` where the token cannot be drafted.
        mask: positions that have a label inside the text.
        accepted: of blocks that the draft wrote, what the target accepted; None on other text.
    """

    target_log_probs: Float[Tensor, "*batch horizon vocab"]
    draft_logits: Float[Tensor, "*batch horizon vocab"]
    labels: Int64[Tensor, "*batch horizon"]
    mask: Bool[Tensor, "*batch horizon"]
    accepted: Bool[Tensor, "*batch horizon"] | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Where in the run an update stands, and how good the draft is, measured over the whole batch of the update.

    Attributes:
        step: updates made so far.
        total_steps: of the run.
        position_acceptance: mean acceptance at each draft position, without gradient; over all pieces of the batch.
        settled: `AcceptanceHistory.settled` of the updates before this one.
    """

    step: int
    total_steps: int
    position_acceptance: Float[Tensor, " horizon"]
    settled: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective(ABC):
    """One value per position of a block; the trainer weighs, masks and reduces.

    An objective is its settings and nothing else: what a run learns on the way reaches it through `Moment`, so one
    object can serve many runs and a resumed run needs no state of it. Objectives that look at a whole block return
    values whose mean over the valid positions is the published loss (up to a constant that each docstring names).

    Attributes:
        title: in the words of its paper.
        needs: what it has to be given.
        weights: position weights to train it with unless others are asked for: `uniform` where the loss itself weighs
            the positions, those of its recipe where it has one, else `bound`.
    """

    title: ClassVar[str]
    needs: ClassVar[frozenset[Need]]
    weights: ClassVar[PositionWeights] = "bound"

    @abstractmethod
    def values(self, blocks: Blocks, moment: Moment) -> Float[Tensor, "*batch horizon"]:
        """Per-position loss; what stands at masked positions is never looked at."""

    def divergence(self, *, step: int, total_steps: int, settled: float) -> Divergence | None:
        """The same loss as a mixture that can be computed from hidden states, without logits of the whole batch.

        None where there is no such form: the loss looks at whole blocks, is no mixture of these losses, or needs the
        batch's acceptance before its weights are known (LK-lambda).

        Args:
            step: as in `Moment`.
            total_steps: as in `Moment`.
            settled: as in `Moment`.
        """
        return None

    def kept(self, blocks: Blocks) -> Bool[Tensor, "*batch horizon"]:
        """Positions that enter sum and count, among the valid ones: all, unless an objective needs what some lack."""
        return self.kept_labels(blocks.labels)

    def kept_labels(self, labels: Int64[Tensor, "*batch horizon"]) -> Bool[Tensor, "*batch horizon"]:
        """The same as far as labels decide it; for an objective with a `divergence` they do."""
        return torch.ones_like(labels, dtype=torch.bool)

    def measures(self, moment: Moment) -> dict[str, float]:
        """What the objective derives from the moment, for the log."""
        return {}

    def describe(self) -> str:
        """Objective and settings in words and numbers, for the provenance and a run's identity."""
        return ", ".join([self.title, *(f"{name} {value}" for name, value in asdict(self).items())])
