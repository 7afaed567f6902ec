"""What a training step minimises, as an object that a recipe can hold."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from forerun import losses


class Objective(ABC):
    """One value per position from laws; the trainer weighs and reduces."""

    @abstractmethod
    def values(
        self,
        target_log_probs: Float[Tensor, "*batch draft_vocab"],
        draft_logits: Float[Tensor, "*batch draft_vocab"],
        labels: Int[Tensor, "*batch"],
        *,
        step: int,
        total_steps: int,
    ) -> Float[Tensor, "*batch"]:
        """Per-position loss.

        Args:
            target_log_probs: the target's law gathered at the draft vocabulary.
            draft_logits: of the drafter.
            labels: data tokens in draft numbering, ``losses.OUTSIDE`` where the token cannot be drafted.
            step: updates made so far.
            total_steps: of the run.
        """

    def has_value(self, labels: Int[Tensor, "*batch"]) -> Bool[Tensor, "*batch"]:
        """Positions that enter the mean: all, unless an objective needs what a position lacks."""
        return torch.ones_like(labels, dtype=torch.bool)

    @abstractmethod
    def describe(self) -> str:
        """Objective and schedule in words and numbers, for the provenance."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TVP(Objective):
    """The annealed divergence from coverage to total variation.

    Attributes:
        schedule: ``linear`` anneals beta from ``beta`` to 1 over the first ``fraction`` of the run; ``fixed`` keeps
            ``beta``; ``reversed`` anneals from 1 to 0.
        beta: start of ``linear``, value of ``fixed``.
        fraction: of the run that anneals.
    """

    schedule: Literal["linear", "fixed", "reversed"] = "linear"
    beta: float = 0.0
    fraction: float = 0.8

    def beta_at(self, step: int, total_steps: int) -> float:
        """Beta of one update."""
        if self.schedule == "fixed":
            return losses.fixed_beta(step, total_steps, beta=self.beta)
        if self.schedule == "reversed":
            return losses.reversed_beta(step, total_steps, fraction=self.fraction)
        return losses.linear_beta(step, total_steps, start=self.beta, fraction=self.fraction)

    def values(
        self, target_log_probs: Tensor, draft_logits: Tensor, labels: Tensor, *, step: int, total_steps: int
    ) -> Tensor:
        """See :class:`Objective`."""
        return losses.tvp(target_log_probs, draft_logits, beta=self.beta_at(step, total_steps))

    def describe(self) -> str:
        """See :class:`Objective`."""
        return f"TVP, {self.schedule} schedule, beta {self.beta:g}, anneal fraction {self.fraction:g}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TotalVariation(Objective):
    """Total variation from the first step."""

    def values(
        self, target_log_probs: Tensor, draft_logits: Tensor, labels: Tensor, *, step: int, total_steps: int
    ) -> Tensor:
        """See :class:`Objective`."""
        return losses.total_variation(target_log_probs, draft_logits)

    def describe(self) -> str:
        """See :class:`Objective`."""
        return "TV"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardKL(Objective):
    """Forward Kullback-Leibler divergence on the renormalised draft vocabulary."""

    def values(
        self, target_log_probs: Tensor, draft_logits: Tensor, labels: Tensor, *, step: int, total_steps: int
    ) -> Tensor:
        """See :class:`Objective`."""
        return losses.forward_kl(target_log_probs, draft_logits)

    def describe(self) -> str:
        """See :class:`Objective`."""
        return "forward KL"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CrossEntropy(Objective):
    """Cross-entropy against the data token; tokens outside the draft vocabulary are masked positions."""

    def values(
        self, target_log_probs: Tensor, draft_logits: Tensor, labels: Tensor, *, step: int, total_steps: int
    ) -> Tensor:
        """See :class:`Objective`."""
        return losses.cross_entropy(labels, draft_logits)

    def has_value(self, labels: Tensor) -> Tensor:
        """Tokens that cannot be drafted have no cross-entropy; counting them would dilute the mean."""
        return labels >= 0

    def describe(self) -> str:
        """See :class:`Objective`."""
        return "cross-entropy, data token"
