"""The seam at which acceptance rules are exchanged."""

from abc import ABC, abstractmethod

from jaxtyping import Float64
from torch import Tensor

from forerun.distributions import Law
from forerun.verification.outcome import Outcome
from forerun.verification.proposal import Proposal


class Rule(ABC):
    """Decides which draft tokens of a chain stand."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name for records and reports."""

    @property
    @abstractmethod
    def exact(self) -> bool:
        """Whether the output law is the target's; a lossy rule says no, and so does every result made with it."""

    @abstractmethod
    def verify(self, target: Law, proposal: Proposal, *, uniforms: Float64[Tensor, " horizon"]) -> Outcome:
        """Tests a proposal.

        Args:
            target: ``horizon + 1`` rows; row j is the target's law after the context and the first j draft tokens.
            proposal: The draft tokens and their law.
            uniforms: One fresh number in [0, 1) per draft token, shared with no other decision.
        """
