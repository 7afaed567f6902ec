"""Laws restricted to a short list of candidates, as a path selector sees them."""

from jaxtyping import Float, Int64
from torch import Tensor

from forerun.errors import ForerunError


def top_candidates(draft_logits: Float[Tensor, "*batch vocab"], count: int = 16) -> Int64[Tensor, "*batch count"]:
    """Ids of the draft's most probable tokens at each position, best first.

    Args:
        draft_logits: raw logits; only their order counts.
        count: length of the list; DFlash2's path selector scores 16.

    Raises:
        ForerunError: count below 1 or above the vocabulary.
    """
    if not 1 <= count <= draft_logits.shape[-1]:
        raise ForerunError(f"count is {count}; a vocabulary of {draft_logits.shape[-1]} has 1 to that many candidates")
    return draft_logits.topk(count, dim=-1).indices


def candidate_rows(
    rows: Float[Tensor, "*batch vocab"], candidate_ids: Int64[Tensor, "*batch count"]
) -> Float[Tensor, "*batch count"]:
    """The rows at each position's own candidates; the same for draft logits (or path scores) and target rows.

    Target log-probabilities are *not renormalised*: to every loss the list is a draft vocabulary of its own for that
    position, and each docstring says what the target's mass outside contributes (TV and D_beta count it as rejected,
    without gradient: no loss on the list can move the list). Draft logits are renormalised by the loss's softmax, which
    is the law that such a drafter samples from.

    Args:
        rows: target log-probabilities or draft logits.
        candidate_ids: from `top_candidates`.
    """
    return rows.gather(-1, candidate_ids)
