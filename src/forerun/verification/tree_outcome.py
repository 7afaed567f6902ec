"""What verification says about a tree."""

from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from forerun.distributions import Law


@dataclass(frozen=True)
class TreeOutcome:
    """The accepted path, the law of the token after it, and what the test looked like.

    A depth d (from 1) is *tried* when the path reached depth d - 1 and the node there has children, and it is
    *reached* when one of them is accepted. Feedback has one entry for each tried depth, so one more than the path has
    nodes unless the path ends in a leaf. Both kinds of entries predict the same bit, whether depth d is reached::

        E[sum over rounds in which d is tried of accept_probabilities[d - 1]] = E[number that reach d]

    and the same for ``overlaps``. On a chain the entries are those of ``Outcome`` as far as the chain was tried.

    Attributes:
        path: Accepted nodes from the root down.
        emission: One row: the law of the next token, a correction where all children were rejected, a bonus at a leaf.
        accept_probabilities: At each tried depth, the probability over the rule's own uniforms that some child is
            accepted, given the children.
        overlaps: At each tried depth, the same averaged over the draw of the last sibling, given its elders (of a
            single sampled child: ``1 - TV(target, draft)`` under the token-level test). The same number again where
            nothing was drawn.
    """

    path: tuple[int, ...]
    emission: Law
    accept_probabilities: Float64[Tensor, " tried"]
    overlaps: Float64[Tensor, " tried"]

    @property
    def prefix_weights(self) -> Float64[Tensor, " tried"]:
        """1 for each tried depth that was reached, 0 for one that was not; on average, how probable the depth is.

        Only nodes on the path are ever looked at, so here the weight is the bit itself. The product of
        ``accept_probabilities`` would count a depth's probability twice: these entries exist only where the path went.
        """
        return (torch.arange(len(self.overlaps)) < len(self.path)).double()
