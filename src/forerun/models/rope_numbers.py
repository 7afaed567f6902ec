"""The target's rotary position embedding, resolved from its configuration to numbers.

Base, scaling kind and partial factor stand under several names in configurations; a drafter that inherits them wrongly
loads, runs and is accepted rarely. So they are resolved once, by the library that runs the target.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import torch
from transformers import PretrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

_DEFAULT_THETA = 10_000.0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RopeNumbers:
    """What turns pair i of a head at position n: the angle n * inverse_frequencies[i].

    Attributes:
        inverse_frequencies: radians per position, one for each pair that turns.
        attention_scaling: factor of cosines and sines.
    """

    inverse_frequencies: tuple[float, ...]
    attention_scaling: float


def rope_numbers(config: PretrainedConfig, head_dim: int) -> RopeNumbers:
    """Of the layers with full attention; models without a rotary embedding get the plain one over the whole head.

    Args:
        config: of the language model.
        head_dim: of its attention.
    """
    stored: dict[str, Any] = config.to_dict().get("rope_parameters") or {}
    layer_type = "full_attention" if "full_attention" in stored else None
    own = stored[layer_type] if layer_type else stored
    kind = str(own.get("rope_type", "default"))
    if kind == "default":
        theta = float(own.get("rope_theta", _DEFAULT_THETA))
        dim = int(head_dim * float(own.get("partial_rotary_factor", 1.0)))
        exponents = torch.arange(0, dim, 2, dtype=torch.float64) / dim
        return RopeNumbers(inverse_frequencies=tuple((theta**-exponents).tolist()), attention_scaling=1.0)
    frequencies, scaling = ROPE_INIT_FUNCTIONS[kind](config, "cpu", layer_type=layer_type)
    return RopeNumbers(
        inverse_frequencies=tuple(frequencies.to(torch.float64).tolist()), attention_scaling=float(scaling)
    )
