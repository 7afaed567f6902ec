"""Cross-entropy against the data token. It needs no target law."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from forerun.errors import ForerunError
from forerun.losses._inputs import widened


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
    if labels.shape != draft_logits.shape[:-1]:
        raise ForerunError(
            f"labels {tuple(labels.shape)} do not match draft_logits {tuple(draft_logits.shape)}: one label per row"
        )
    draft_log_probs = torch.log_softmax(widened(draft_logits), dim=-1)
    # A masked row is read at index 0 and then replaced, so that it cannot index outside the vocabulary.
    log_likelihood = draft_log_probs.gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return torch.where(labels >= 0, -log_likelihood, 0.0)
