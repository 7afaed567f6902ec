"""Every function of draft logits under one signature, so that one suite can hold all of them to their contract."""

from collections.abc import Callable

import torch
from torch import Tensor

from forerun import losses

Values = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""(labels, target_log_probs, draft_logits, mask) -> values; losses of a position do not look at the mask."""


def half_accepted(labels: Tensor) -> Tensor:
    """An accepted prefix for Draft-OPD: the first half of every block."""
    horizon = labels.shape[-1] if labels.ndim else 1
    return (torch.arange(horizon, device=labels.device) < (horizon + 1) // 2).expand(labels.shape)


POSITION_LOSSES: dict[str, Values] = {
    "argmax_cross_entropy": lambda labels, target, draft, mask: losses.argmax_cross_entropy(target, draft),
    "ce_l1": lambda labels, target, draft, mask: losses.ce_l1(labels, target, draft),
    "cross_entropy": lambda labels, target, draft, mask: losses.cross_entropy(labels, draft),
    "dspark": lambda labels, target, draft, mask: losses.dspark(
        labels, target, draft, draft.new_zeros(draft.shape[:-1])
    ),
    "forward_kl": lambda labels, target, draft, mask: losses.forward_kl(target, draft),
    "jensen_shannon": lambda labels, target, draft, mask: losses.jensen_shannon(target, draft),
    "lk_alpha": lambda labels, target, draft, mask: losses.lk_alpha(target, draft),
    "lk_lambda by position": lambda labels, target, draft, mask: losses.lk_lambda(
        target, draft, acceptances=torch.tensor(0.4)
    ),
    "lk_lambda by token": lambda labels, target, draft, mask: losses.lk_lambda(target, draft),
    "reverse_kl": lambda labels, target, draft, mask: losses.reverse_kl(target, draft),
    "soft_cross_entropy": lambda labels, target, draft, mask: losses.soft_cross_entropy(target, draft),
    "total_variation": lambda labels, target, draft, mask: losses.total_variation(target, draft),
    "tv_ce": lambda labels, target, draft, mask: losses.tv_ce(labels, target, draft),
    "tv_kl": lambda labels, target, draft, mask: losses.tv_kl(target, draft),
    "tvp 0": lambda labels, target, draft, mask: losses.tvp(target, draft, beta=0.0),
    "tvp 1e-6": lambda labels, target, draft, mask: losses.tvp(target, draft, beta=1e-6),
    "tvp 0.5": lambda labels, target, draft, mask: losses.tvp(target, draft, beta=0.5),
    "tvp 1": lambda labels, target, draft, mask: losses.tvp(target, draft, beta=1.0),
}
BLOCK_LOSSES: dict[str, Values] = {
    "block_verification": losses.block_verification,
    "d_pace": lambda labels, target, draft, mask: losses.d_pace(labels, draft, mask),
    "draft_opd": lambda labels, target, draft, mask: losses.draft_opd(target, draft, half_accepted(labels), mask),
    "end_to_end_tv": lambda labels, target, draft, mask: losses.end_to_end_tv(target, draft, mask),
    "left_to_right": lambda labels, target, draft, mask: losses.left_to_right(labels, draft, mask),
}
POSITION_METRICS: dict[str, Values] = {
    "acceptance": lambda labels, target, draft, mask: losses.acceptance(target, draft),
    "token_acceptance": lambda labels, target, draft, mask: losses.token_acceptance(labels, target, draft),
}
OTHERS: dict[str, str] = {
    "agreed_prefix": "booleans",
    "block_acceptance_length": "one value a block",
    "chain_likelihood": "part of left_to_right",
    "first_error": "booleans",
    "top_candidates": "ids",
    "until_first_error": "booleans",
}
"""Functions of draft logits that are no loss of a position or block, and why."""

LOSSES = POSITION_LOSSES | BLOCK_LOSSES
ALL = LOSSES | POSITION_METRICS
STOPPED = frozenset({"d_pace", "lk_lambda by token", "dspark"})
"""Losses with a weight or label that is held fixed: their gradient is not the derivative of their value."""
