"""Does the target say the same of a text whether it reads it token by token or several tokens a pass?

Verification reads several. The laws differ by rounding, and by nothing else if masks, positions and caches are right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from forerun.distributions import SamplingParams, law_from_logits, total_variation
from forerun.models import Target

WIDTH_TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-4, torch.bfloat16: 0.2}
"""Largest total variation that rounding is believed to cause, by the target's number type.

SmolLM2-135M showed at most 7.9e-6 in float32 (3 prompts x 24 tokens) and 0.062 in bfloat16 (3 prompts x 16 tokens);
larger models add more numbers, and some families compute attention weights in float32 whatever the model's type.
A key at a wrong position or a mask off by one moves laws by far more.
"""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WidthDifference:
    """The largest difference found in one text.

    Attributes:
        width: tokens a pass, compared with one token a pass.
        num_laws: compared.
        total_variation: largest total variation between two laws at one position.
        position: index in the answer of the token that these two laws decide.
        tolerance: below which it is rounding.
    """

    width: int
    num_laws: int
    total_variation: float
    position: int
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether rounding explains it."""
        return self.total_variation <= self.tolerance


def width_differences(
    target: Target, prompt_ids: Sequence[int], answer_ids: Sequence[int], widths: Sequence[int]
) -> list[WidthDifference]:
    """Read an answer in passes of each width and compare its laws with those of one-token passes.

    Args:
        target: the model.
        prompt_ids: read in one pass, whatever the width.
        answer_ids: at least two tokens; the laws of all but the first are compared.
        widths: tokens a pass; the last pass of the answer may be narrower.
    """
    reference = law_from_logits(_logits(target, prompt_ids, answer_ids, 1), SamplingParams())
    found = []
    for width in widths:
        law = law_from_logits(_logits(target, prompt_ids, answer_ids, width), SamplingParams())
        distances = total_variation(reference, law)
        worst = int(distances.argmax())
        found.append(
            WidthDifference(
                width=width,
                num_laws=len(distances),
                total_variation=float(distances[worst]),
                position=worst + 1,  # the first token was decided by the pass over the prompt
                tolerance=WIDTH_TOLERANCE[target.dtype],
            )
        )
    return found


def _logits(
    target: Target, prompt_ids: Sequence[int], answer_ids: Sequence[int], width: int
) -> Float[Tensor, "laws vocab"]:
    cache = target.new_cache()
    target.forward(torch.tensor(prompt_ids), cache, num_logits=1)
    read = torch.tensor(answer_ids[:-1])  # nothing is asked about what follows the last token
    return torch.cat([target.forward(piece, cache).logits for piece in read.split(width)])
