"""Cross-entropy against one token: the data's, or the one that the target likes best."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from forerun.losses._inputs import aligned, label_log_probs
from forerun.losses.divergence import Divergence
from forerun.losses.draft_vocabulary import OUTSIDE
from forerun.losses.objective import Blocks, Moment, Need, Objective


def cross_entropy(
    labels: Int64[Tensor, "*batch"], draft_logits: Float[Tensor, "*batch vocab"]
) -> Float[Tensor, "*batch"]:
    """Negative log-likelihood of the data token under the draft.

        CE = -log draft(label),   d CE / d logits = draft - onehot(label)

    On text sampled from the target it is an unbiased one-sample estimate of the gradient of the forward KL.

    Limits: a negative label (`OUTSIDE`: the data token is not in a pruned draft vocabulary) is a masked position; its
    value is 0 and it has no gradient. Take it out of the count as well (`mask & (labels >= 0)`), otherwise the mean is
    diluted. A label whose draft logit is `-inf` gives `+inf`; the gradient keeps its formula and is finite.

    Args:
        labels: data tokens as indices into the draft vocabulary (see `draft_labels`).
        draft_logits: raw logits; the softmax is taken here, in float32 (float64 stays).

    Returns:
        One value per position, in nats.

    Raises:
        ForerunError: labels and logits do not describe the same positions.

    References:
        DFlash (arXiv 2602.06036) and DSpark (arXiv 2607.05147) use the regenerated data token as the label.
    """
    return -torch.where(labels >= 0, label_log_probs(labels, draft_logits), 0.0)


def argmax_cross_entropy(
    target_log_probs: Float[Tensor, "*batch vocab"], draft_logits: Float[Tensor, "*batch vocab"]
) -> Float[Tensor, "*batch"]:
    """Negative log-likelihood, under the draft, of the token that the target likes best.

        CE = -log draft(v*),   v* = argmax_v target(v),   d CE / d logits = draft - onehot(v*)

    It trains drafts for greedy decoding: at temperature 1 nothing tells it how the rest of the mass is spread.

    Pruned draft vocabulary: v* is the best token *among the rows given*; the mass outside contributes nothing.

    Limits: the first of several equally likely tokens is taken. A row without any target mass is a masked position:
    value 0, no gradient. A token whose draft logit is `-inf` gives `+inf` with a finite gradient.

    Args:
        target_log_probs: target rows, sum at most 1; detached here.
        draft_logits: raw logits; the softmax is taken here, in float32 (float64 stays).

    Returns:
        One value per position, in nats.

    Raises:
        ForerunError: the shapes differ.

    References:
        The label that vLLM's speculators use; DSpark and DFlash use the data token instead.
    """
    target_log_probs, draft_logits = aligned(target_log_probs, draft_logits)
    best = target_log_probs.detach().max(dim=-1)  # stop-gradient: the target is the teacher
    return cross_entropy(torch.where(best.values.isneginf(), OUTSIDE, best.indices), draft_logits)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CrossEntropy(Objective):
    """Cross-entropy against the data token; tokens outside the draft vocabulary are masked positions."""

    title: ClassVar[str] = "cross-entropy, data token"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.DATA_TOKEN})

    def values(self, blocks: Blocks, moment: Moment) -> Float[Tensor, "*batch horizon"]:
        """See `Objective`."""
        return cross_entropy(blocks.labels, blocks.draft_logits)

    def kept_labels(self, labels: Int64[Tensor, "*batch horizon"]) -> Bool[Tensor, "*batch horizon"]:
        """Tokens that cannot be drafted have no cross-entropy; counting them would dilute the mean."""
        return labels >= 0

    def divergence(self, *, step: int, total_steps: int, settled: float) -> Divergence:
        """See `Objective`."""
        return Divergence(cross_entropy=1.0)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ArgmaxCrossEntropy(Objective):
    """Cross-entropy against the token that the target likes best."""

    title: ClassVar[str] = "cross-entropy, target's argmax"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.TARGET_LAW})

    def values(self, blocks: Blocks, moment: Moment) -> Float[Tensor, "*batch horizon"]:
        """See `Objective`."""
        return argmax_cross_entropy(blocks.target_log_probs, blocks.draft_logits)
