"""Small problems for the fused path, and what the eager losses say about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from forerun import losses
from forerun.losses.fused import Divergence, Projection, TargetStates

Eager = Callable[[Tensor, Tensor, Tensor], Tensor]  # (labels, target_log_probs, draft_logits) -> values


def _tvp(beta: float) -> tuple[Divergence, Eager]:
    return Divergence(tvp=1.0, beta=beta), lambda labels, target, draft: losses.tvp(target, draft, beta=beta)


DIVERGENCES: dict[str, tuple[Divergence, Eager]] = {
    "cross_entropy": (Divergence(cross_entropy=1.0), lambda labels, _, draft: losses.cross_entropy(labels, draft)),
    "soft_cross_entropy": (
        Divergence(soft_cross_entropy=1.0),
        lambda _, target, draft: losses.soft_cross_entropy(target, draft),
    ),
    "forward_kl": (Divergence(forward_kl=1.0), lambda _, target, draft: losses.forward_kl(target, draft)),
    "total_variation": (
        Divergence(total_variation=1.0),
        lambda _, target, draft: losses.total_variation(target, draft),
    ),
    "lk_alpha": (Divergence(lk_alpha=1.0), lambda _, target, draft: losses.lk_alpha(target, draft)),
    "tvp 0": _tvp(0.0),
    "tvp 1e-6": _tvp(1e-6),
    "tvp 0.5": _tvp(0.5),
    "tvp 1": _tvp(1.0),
    "tv + kl": (
        Divergence(total_variation=0.9, forward_kl=0.1),
        lambda _, target, draft: 0.9 * losses.total_variation(target, draft) + 0.1 * losses.forward_kl(target, draft),
    ),
    "everything": (
        Divergence(cross_entropy=0.3, lk_alpha=0.2, tvp=2.0, beta=0.25, total_variation=0.5, forward_kl=0.7),
        lambda labels, target, draft: (
            0.3 * losses.cross_entropy(labels, draft)
            + 0.2 * losses.lk_alpha(target, draft)
            + 2.0 * losses.tvp(target, draft, beta=0.25)
            + 0.5 * losses.total_variation(target, draft)
            + 0.7 * losses.forward_kl(target, draft)
        ),
    ),
}


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Hidden states and heads of both sides at some positions; the draft's may be differentiated."""

    hidden: Tensor
    weight: Tensor
    target_hidden: Tensor
    target_weight: Tensor
    labels: Tensor

    def to(self, dtype: torch.dtype) -> Problem:
        """The same numbers, as leaves of their own."""
        return Problem(
            hidden=self.hidden.detach().to(dtype).requires_grad_(),
            weight=self.weight.detach().to(dtype).requires_grad_(self.weight.requires_grad),
            target_hidden=self.target_hidden.to(dtype),
            target_weight=self.target_weight.to(dtype),
            labels=self.labels,
        )

    def frozen(self) -> Problem:
        """With a head that is not trained."""
        return replace(self, weight=self.weight.detach())

    @property
    def draft(self) -> Projection:
        """The draft's logits, not yet computed."""
        return Projection(hidden=self.hidden, weight=self.weight)

    @property
    def target(self) -> TargetStates:
        """The target's law, not yet computed."""
        return TargetStates(hidden=self.target_hidden, weight=self.target_weight)

    @property
    def target_log_probs(self) -> Tensor:
        """The target's law in full."""
        return (self.target_hidden @ self.target_weight.T).log_softmax(-1)

    def eager(self, loss: Eager) -> Tensor:
        """Values from whole logits."""
        return loss(self.labels, self.target_log_probs, self.hidden @ self.weight.T)


def problem(positions: int = 40, *, vocab: int = 97, hidden: int = 8, seed: int = 0) -> Problem:
    """Laws with some common mass, in float64, with a trainable head; one label in ten is `OUTSIDE`."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    weight = normal(vocab, hidden) / hidden**0.5
    states = normal(positions, hidden)
    labels = torch.randint(vocab, (positions,), generator=generator)
    return Problem(
        hidden=(2 * states).requires_grad_(),
        weight=weight.requires_grad_(),
        target_hidden=2 * states + normal(positions, hidden),
        target_weight=weight.detach() + 0.1 * normal(vocab, hidden),
        labels=torch.where(torch.arange(positions) % 10 == 3, losses.OUTSIDE, labels),
    )
