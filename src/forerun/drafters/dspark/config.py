"""What a DSpark drafter is, as a strict file: an unknown or missing field is an error."""

from __future__ import annotations

from typing import Literal, final

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, model_validator


@final
class DSparkConfig(BaseModel):
    """Shape of the network and of what it reads from its target.

    Attributes:
        hidden_size: width of the target's residual stream, which is the drafter's too.
        target_vocab_size: width of the target's logits.
        captured_layers: target layers read as context.
        captured_convention: how a layer number is meant; only one convention exists here, and it is written down.
        num_layers, num_heads, num_kv_heads, head_dim, intermediate_size: the parallel backbone.
        block_size: slots computed together, which is the largest horizon.
        markov_rank: width of the first-order correction.
        draft_vocab_size: tokens that can be drafted.
        rope_theta, norm_eps: numbers, resolved once from the target.
        max_positions: longest sequence.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    architecture: Literal["dspark"] = "dspark"
    hidden_size: int = Field(gt=0)
    target_vocab_size: int = Field(gt=0)
    captured_layers: tuple[NonNegativeInt, ...] = Field(min_length=1)
    captured_convention: Literal["output_of_zero_based_layer"] = "output_of_zero_based_layer"
    num_layers: int = Field(gt=0)
    num_heads: int = Field(gt=0)
    num_kv_heads: int = Field(gt=0)
    head_dim: int = Field(gt=0, multiple_of=2)
    intermediate_size: int = Field(gt=0)
    block_size: int = Field(gt=0)
    markov_rank: int = Field(gt=0)
    draft_vocab_size: int = Field(gt=0)
    rope_theta: float = Field(gt=0)
    norm_eps: float = Field(gt=0)
    max_positions: int = Field(gt=0)

    @model_validator(mode="after")
    def _shapes_fit(self) -> DSparkConfig:
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"num_heads {self.num_heads} is not a multiple of num_kv_heads {self.num_kv_heads}")
        if self.draft_vocab_size > self.target_vocab_size:
            raise ValueError(
                f"draft_vocab_size {self.draft_vocab_size} exceeds target_vocab_size {self.target_vocab_size}"
            )
        return self
