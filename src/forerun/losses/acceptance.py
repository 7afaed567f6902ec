"""Acceptance probabilities measured on teacher-forced rows: metrics and labels, never differentiated."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from forerun.losses._inputs import aligned, check_labels, label_log_probs


def acceptance(
    target_log_probs: Float[Tensor, "*batch vocab"], draft_logits: Float[Tensor, "*batch vocab"]
) -> Float[Tensor, "*batch"]:
    """Probability that a token drawn from the draft is accepted: `alpha = sum_v min(target(v), draft(v)) = 1 - TV`.

    Pruned draft vocabulary: pass the gathered rows; mass outside is never accepted and contributes nothing.
    It is also the label of a confidence head. Both inputs are detached: use `total_variation` to train.

    Args:
        target_log_probs: target rows, sum at most 1.
        draft_logits: raw logits; the softmax is taken here, in float32 (float64 stays).

    Returns:
        One value in [0, 1] per position, without gradient.

    Raises:
        ForerunError: the shapes differ.
    """
    target_log_probs, draft_logits = aligned(target_log_probs, draft_logits)
    target_log_probs = target_log_probs.detach()  # stop-gradient: a metric
    draft_logits = draft_logits.detach()  # stop-gradient: a metric
    return torch.minimum(target_log_probs.exp(), torch.softmax(draft_logits, dim=-1)).sum(-1)


def token_acceptance(
    labels: Int64[Tensor, "*batch"],
    target_log_probs: Float[Tensor, "*batch vocab"],
    draft_logits: Float[Tensor, "*batch vocab"],
) -> Float[Tensor, "*batch"]:
    """Acceptance ratio of the data token: `rho = min(1, draft(v)/target(v))`, the factor of a surviving prefix.

    For v drawn from the target, its mean is the acceptance of the position, and products of it along the rollout are
    unbiased for the survival of a drafted prefix.

    Limits: a negative label (`OUTSIDE`) has draft probability 0, so rho = 0. A data token to which the target gives
    probability 0 cannot come from the target; its ratio is taken as 1.

    Args:
        labels: data tokens, sampled from the same target law, as indices into the draft vocabulary.
        target_log_probs: target rows, sum at most 1, not renormalised.
        draft_logits: raw logits; the softmax is taken here, in float32 (float64 stays).

    Returns:
        One value in [0, 1] per position, without gradient.

    Raises:
        ForerunError: the shapes differ.
    """
    target_log_probs, draft_logits = aligned(target_log_probs, draft_logits)
    check_labels(labels, draft_logits)
    target_log_probs = target_log_probs.detach()  # stop-gradient: a metric
    draft_logits = draft_logits.detach()  # stop-gradient: a metric
    return token_log_ratio(labels, target_log_probs, draft_logits).clamp(max=0.0).exp()


def token_log_ratio(
    labels: Int64[Tensor, "*batch"],
    target_log_probs: Float[Tensor, "*batch vocab"],
    draft_logits: Float[Tensor, "*batch vocab"],
) -> Float[Tensor, "*batch"]:
    """The logarithm of draft(v)/target(v), differentiable in the draft; limits as in `token_acceptance`."""
    index = labels.clamp(min=0).unsqueeze(-1)
    target_log_prob = target_log_probs.gather(-1, index).squeeze(-1)
    impossible = target_log_prob.isneginf() & (labels >= 0)
    # -inf minus -inf, where neither law has the token, is replaced before it can spread.
    log_ratio = label_log_probs(labels, draft_logits) - target_log_prob.masked_fill(target_log_prob.isneginf(), 0.0)
    return log_ratio.masked_fill(impossible, 0.0)
