"""Which cached keys each token of a batch of blocks may see, as the masks that transformers takes.

A sequence's key lies in the slot of its position, but for the tokens of a tree, which lie in the order of the block.
So visibility goes by ancestry and, inside a sliding window, by position; a slot only says where a key is.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@lru_cache(maxsize=1024)
def ancestry(parents: tuple[int, ...]) -> tuple[tuple[int, ...], Bool[Tensor, "length length"]]:
    """Depth of each token of a tree, and who its ancestors are (itself included).

    Args:
        parents: index of the token before each one, -1 at the roots.

    Example:
        >>> depths, ancestors = ancestry((-1, 0, 0, 1))
        >>> depths
        (0, 1, 1, 2)
        >>> ancestors.int().tolist()
        [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]]
    """
    depths: list[int] = []
    ancestors = torch.eye(len(parents), dtype=torch.bool)
    for index, parent in enumerate(parents):
        assert -1 <= parent < index, "a parent stands before its children"
        depths.append(0 if parent < 0 else depths[parent] + 1)
        if parent >= 0:
            ancestors[index] |= ancestors[parent]
    return tuple(depths), ancestors


def chain_mask(slots: Int[Tensor, "rows width"], num_keys: int) -> Bool[Tensor, "rows width num_keys"]:
    """Each token of a chain sees the keys up to its own: ``key <= slot``."""
    return torch.arange(num_keys, device=slots.device) <= slots[..., None]


def tree_mask(
    slots: Int[Tensor, "rows width"], ancestors: Bool[Tensor, "rows width width"], num_keys: int
) -> Bool[Tensor, "rows width num_keys"]:
    """Each token of a tree sees what stood in the cache before the block, its ancestors and itself."""
    keys = torch.arange(num_keys, device=slots.device)
    mask = (keys < slots[:, :1, None]).expand(-1, slots.shape[1], -1).clone()
    rows = torch.arange(len(slots), device=slots.device)[:, None]
    mask[rows, :, slots] = ancestors.transpose(1, 2)
    return mask


def window_mask(
    slots: Int[Tensor, "rows width"], positions: Int[Tensor, "rows width"], num_keys: int, window: int
) -> Bool[Tensor, "rows width num_keys"]:
    """Each token sees the keys whose position is less than ``window`` before its own."""
    keys = torch.arange(num_keys, device=slots.device).expand(len(slots), -1).clone()  # positions of cached keys
    keys.scatter_(1, slots, positions)
    return positions[..., None] - keys[:, None] < window


def additive(mask: Bool[Tensor, "*shape"], dtype: torch.dtype) -> Float[Tensor, "*shape"]:
    """Zero where visible; the lowest finite number elsewhere, so that a row that sees nothing does not become NaN."""
    zero = torch.zeros((), dtype=dtype, device=mask.device)
    return torch.where(mask, zero, torch.finfo(dtype).min)
