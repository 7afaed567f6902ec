"""What every trained drafter writes down about itself, as a strict file: an unknown or missing field is an error."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, model_validator

OneLayer = Annotated[tuple[NonNegativeInt, ...], Field(min_length=1, max_length=1)]
"""``captured_layers`` of a network that reads a single one."""


class DrafterConfig(BaseModel):
    """Fields that all architectures share; each architecture adds its own and names itself in ``architecture``.

    Attributes:
        architecture: which network.
        hidden_size: width of the target's residual stream.
        target_vocab_size: width of the target's logits.
        captured_layers: target layers read.
        captured_convention: how a layer number is meant; only one convention exists here, and it is written down.
        block_size: tokens drafted at most, which is the largest horizon.
        draft_vocab_size: tokens that can be drafted.
        max_positions: longest sequence.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    architecture: str
    hidden_size: int = Field(gt=0)
    target_vocab_size: int = Field(gt=0)
    captured_layers: tuple[NonNegativeInt, ...] = Field(min_length=1)
    captured_convention: Literal["output_of_zero_based_layer"] = "output_of_zero_based_layer"
    block_size: int = Field(gt=0)
    draft_vocab_size: int = Field(gt=0)
    max_positions: int = Field(gt=0)

    @model_validator(mode="after")
    def _vocabularies_fit(self) -> DrafterConfig:
        if self.draft_vocab_size > self.target_vocab_size:
            raise ValueError(
                f"draft_vocab_size {self.draft_vocab_size} exceeds target_vocab_size {self.target_vocab_size}"
            )
        return self
