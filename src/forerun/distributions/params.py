"""What a user may ask of sampling; says nothing of how it is done."""

import math
from dataclasses import dataclass

from forerun.errors import ForerunError

GREEDY_TEMPERATURE = 1e-5
"""Below this temperature sampling is greedy: the one threshold that draft and verification share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Processing of logits before a token is drawn, applied in the order of the fields.

    Attributes:
        temperature: Logits are divided by it; below ``GREEDY_TEMPERATURE`` the most probable token is taken.
        top_k: Only the ``top_k`` most probable tokens stay, with those that tie with the last; ``None`` is off.
        top_p: Only the most probable tokens that together reach this mass stay; 1 is off.
        min_p: Only tokens with at least this fraction of the most probable token's probability stay; 0 is off.

    Raises:
        ForerunError: A value is outside its range.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        """Refuses values outside their range."""
        if not (math.isfinite(self.temperature) and self.temperature >= 0.0):
            raise ForerunError(f"temperature is {self.temperature}; give a finite number that is 0 (greedy) or more")
        if self.top_k is not None and self.top_k < 1:
            raise ForerunError(f"top_k is {self.top_k}; give 1 or more, or None to keep every token")
        if not 0.0 < self.top_p <= 1.0:
            raise ForerunError(f"top_p is {self.top_p}; give a number above 0 and at most 1 (1 keeps every token)")
        if not 0.0 <= self.min_p < 1.0:
            raise ForerunError(f"min_p is {self.min_p}; give a number from 0 (keeps every token) to below 1")

    @property
    def greedy(self) -> bool:
        """Whether the most probable token is taken instead of a random one."""
        return self.temperature < GREEDY_TEMPERATURE
