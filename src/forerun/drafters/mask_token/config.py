"""What a mask-token drafter writes down about itself."""

from __future__ import annotations

from typing import Literal, final

from pydantic import Field

from forerun.drafters.config import DrafterConfig


@final
class MaskTokenConfig(DrafterConfig):
    """A mask token, and what was trained beside its embedding.

    Attributes:
        form: ``riders``: low-rank updates that act in the rows of masks, so that the target itself reads them and its
            law is untouched; ``copy``: a whole copy of the target, fine-tuned, which drafts beside it.
        block_size: tokens that one pass predicts: the next one, and one for each of ``block_size - 1`` masks.
        rank: of the updates.
        alpha: their scale is ``alpha / rank``.
        sites: linear layers that are updated, with inputs and outputs; none for a copy.
    """

    architecture: Literal["mask-token"] = "mask-token"
    captured_layers: tuple[int, ...] = Field(default=(), max_length=0)
    block_size: int = Field(ge=2)
    form: Literal["riders", "copy"]
    rank: int = Field(ge=0)
    alpha: float = Field(gt=0)
    sites: dict[str, tuple[int, int]]

    @property
    def first_slot(self) -> int:
        """The first predicted token that is a draft: the target's own row makes slot 0 of riders."""
        return 1 if self.form == "riders" else 0
