"""A draft vocabulary smaller than the target's: labels and target rows seen from inside it.

The drafter gives every token outside its vocabulary probability zero. Target rows are therefore *gathered, never
renormalised*: the missing mass is exactly the acceptance that pruning costs, and each loss says what it does with it.
"""

from typing import Final

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from forerun.errors import ForerunError
from forerun.losses._inputs import widened

OUTSIDE: Final = -1
"""Label of a data token that the draft vocabulary does not contain. Every negative label is read this way."""

_ROUNDING_ULPS: Final = 32
"""A float32 log-softmax over 262k tokens sums to 1 within about log(262k) ulps; 32 leaves a factor of two."""


def draft_labels(
    token_ids: Int64[Tensor, "*batch"], draft_token_ids: Int64[Tensor, " draft_vocab"]
) -> Int64[Tensor, "*batch"]:
    """Data tokens as indices into the draft vocabulary, `OUTSIDE` where it does not contain them.

    Args:
        token_ids: tokens of the target's vocabulary.
        draft_token_ids: the target id of each draft token; distinct, in any order.

    Raises:
        ForerunError: the draft vocabulary is empty.

    Example:
        >>> draft_labels(torch.tensor([7, 3, 5]), torch.tensor([3, 7]))
        tensor([ 1,  0, -1])
    """
    if draft_token_ids.numel() == 0:
        raise ForerunError("the draft vocabulary is empty; give at least one token id")
    ascending, order = torch.sort(draft_token_ids)
    slot = torch.searchsorted(ascending, token_ids.contiguous()).clamp(max=ascending.numel() - 1)
    return torch.where(ascending[slot] == token_ids, order[slot], OUTSIDE)


def draft_rows(
    target_log_probs: Float[Tensor, "*batch vocab"], draft_token_ids: Int64[Tensor, " draft_vocab"]
) -> Float[Tensor, "*batch draft_vocab"]:
    """The target's log-probabilities at the draft vocabulary's ids, not renormalised (rows sum to at most 1)."""
    return target_log_probs.index_select(-1, draft_token_ids)


def outside_mass(target_log_probs: Float[Tensor, "*batch vocab"]) -> Float[Tensor, "*batch"]:
    """Target probability that falls outside the draft vocabulary, `1 - sum_v target(v)`: acceptance lost to pruning.

    A deficit below 32 units of rounding (3.8e-6 in float32) cannot be told from the rounding of a complete row and is
    returned as exactly 0, so that an unpruned vocabulary contributes nothing. Give log-probabilities in float32: in
    bfloat16 their own rounding moves the sum by a percent.

    Args:
        target_log_probs: target rows, gathered at the draft vocabulary and not renormalised; `-inf` is probability 0.
    """
    return missing(widened(target_log_probs).exp().sum(-1))


def missing(mass: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """What a row sum lacks to 1, 0 where that is rounding: `outside_mass` for callers that hold the probabilities."""
    deficit = 1.0 - mass
    return torch.where(deficit > _ROUNDING_ULPS * torch.finfo(deficit.dtype).eps, deficit, 0.0)
