"""Padded ids, as tokenizers return them, back to lists of different lengths."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from forerun.errors import ForerunError


def unpadded(token_ids: Int[Tensor, "rows width"], attention_mask: Int[Tensor, "rows width"] | None) -> list[list[int]]:
    """The tokens of each row, padding on the left or right left out.

    Args:
        token_ids: padded ids; what stands in the padding does not matter.
        attention_mask: 1 for tokens, 0 for padding; ``None`` where nothing is padded.

    Raises:
        ForerunError: the mask has another shape, or a row's tokens do not stand side by side.

    Example:
        >>> unpadded(torch.tensor([[9, 9, 5], [6, 7, 9]]), torch.tensor([[0, 0, 1], [1, 1, 0]]))
        [[5], [6, 7]]
    """
    mask = torch.ones_like(token_ids) if attention_mask is None else attention_mask
    if mask.shape != token_ids.shape:
        raise ForerunError(
            f"attention_mask has shape {tuple(mask.shape)}, the ids {tuple(token_ids.shape)}; give one for each id"
        )
    rows = []
    for row, (ids, present) in enumerate(zip(token_ids.tolist(), mask.bool().tolist(), strict=True)):
        places = [place for place, is_token in enumerate(present) if is_token]
        if places and places[-1] - places[0] + 1 != len(places):
            raise ForerunError(f"attention_mask of prompt {row} has a hole; pad on the left or on the right")
        rows.append([ids[place] for place in places])
    return rows
