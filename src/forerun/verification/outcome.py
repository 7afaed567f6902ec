"""What verification says about a proposal."""

from dataclasses import dataclass

from jaxtyping import Float64
from torch import Tensor

from forerun.distributions import Law


@dataclass(frozen=True)
class Outcome:
    """The accepted draft tokens, the law of the token after them, and what the test looked like.

    The two tensors are what a horizon learner learns from. They are probabilities over the rule's own uniform numbers
    and describe the proposal, not what these numbers made of it. Index 0 is the first draft token.

    Attributes:
        accepted: How many draft tokens stand, from the first on.
        emission: One row: the law of the next token, a correction after a rejection, a bonus if all stand.
        accept_probabilities: What each draft token adds to the prefix weight: ``prefix_weights[j] /
            prefix_weights[j - 1]``, where the weight before the first token is 1. For a rule that tests one token after
            the other it is the probability that token j stands given that those before it do. For block verification
            it can exceed 1, because a good token rescues those before it. After a 0 it means nothing.
        overlaps: The same averaged over the draft law of position j, given the drafted tokens before it: 1 minus the
            hazard there. For token-level verification ``1 - TV(target, draft)``. After a 0 it means nothing.
    """

    accepted: int
    emission: Law
    accept_probabilities: Float64[Tensor, " horizon"]
    overlaps: Float64[Tensor, " horizon"]

    @property
    def prefix_weights(self) -> Float64[Tensor, " horizon"]:
        """Probability that the first ``j + 1`` draft tokens stand, given just these; averaged over drafts, survival."""
        return self.accept_probabilities.cumprod(0)
