"""What verification says about a proposal."""

from dataclasses import dataclass

from jaxtyping import Float64
from torch import Tensor

from forerun.distributions import Law


@dataclass(frozen=True)
class Outcome:
    """The accepted draft tokens, the law of the token after them, and what the test looked like.

    Attributes:
        accepted: How many draft tokens stand, from the first on.
        emission: One row: the law of the next token, a correction after a rejection, a bonus if all stand.
        accept_probabilities: At each draft position ``min(1, target / draft)`` of the drafted token.
        overlaps: At each draft position ``1 - TV(target, draft)`` given the drafted tokens before it.
    """

    accepted: int
    emission: Law
    accept_probabilities: Float64[Tensor, " horizon"]
    overlaps: Float64[Tensor, " horizon"]
