"""Attention of a narrow pass in which heads that share their keys are read as more rows of one query.

transformers' attention over torch's kernel copies every key and value once for each head that reads it, in every layer
of every pass with a mask. A pass of a few tokens needs no copies: the queries of a group of heads fit below each other
in one matrix. The sums are the same ones.
"""

from __future__ import annotations

from typing import Any

from jaxtyping import Float
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

GROUPED = "forerun_grouped"
"""The name under which transformers finds this attention."""

_MAX_WIDTH = 64  # the mask is written once for each head of a group, which wide passes with a window would feel


def grouped_attention(
    module: nn.Module,
    query: Float[Tensor, "rows heads width head_dim"],
    key: Float[Tensor, "rows key_heads num_keys head_dim"],
    value: Float[Tensor, "rows key_heads num_keys value_dim"],
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    **settings: Any,
) -> tuple[Float[Tensor, "rows width heads value_dim"], None]:
    """As transformers calls it; what is not a narrow pass over shared keys is left to transformers."""
    rows, heads, width, head_dim = query.shape
    key_heads = key.shape[1]
    group = heads // key_heads
    unmasked = attention_mask is None and width > 1  # causal, which only the kernel itself knows to do
    if group == 1 or unmasked or width > _MAX_WIDTH:
        attended, _ = sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **settings)
        return attended, None
    mask = None if attention_mask is None else attention_mask.repeat(1, 1, group, 1)
    attended = nn.functional.scaled_dot_product_attention(
        query.reshape(rows, key_heads, group * width, head_dim), key, value, attn_mask=mask, scale=scaling
    )
    return attended.reshape(rows, heads, width, -1).transpose(1, 2).contiguous(), None


AttentionInterface.register(GROUPED, grouped_attention)
AttentionMaskInterface.register(GROUPED, sdpa_mask)
