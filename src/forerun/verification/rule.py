"""The seam at which acceptance rules are exchanged."""

from abc import ABC, abstractmethod
from enum import Enum
from typing import final

from jaxtyping import Float64
from torch import Tensor

from forerun.distributions import Law
from forerun.verification.outcome import Outcome
from forerun.verification.proposal import Proposal


@final
class Truncation(Enum):
    """What a draft may be cut short by without changing the output law.

    Past rounds, the context, other requests and coins of one's own are always allowed. This round's target laws and
    verification numbers never are.
    """

    BEFORE_DRAWING = "before drawing"
    """Whether draft token k is submitted is settled before token k is looked at; the tokens before it may decide."""

    ANY_DRAFT = "any draft"
    """All draft tokens may be looked at, and any number of them dropped from the end."""


class AnyRule(ABC):
    """What is to be known of a rule, for chains or for trees."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name for records and reports."""

    @property
    @abstractmethod
    def exact(self) -> bool:
        """Whether the output law is the target's; a lossy rule says no, and so does every result made with it."""

    @property
    @abstractmethod
    def needs_draft_law(self) -> bool:
        """Whether the output depends on ``Proposal.law``; where it does not, a wrong law spoils only the feedback."""

    @property
    @abstractmethod
    def truncation(self) -> Truncation:
        """Which ways of shortening a draft are safe; for a lossy rule, which ones add no bias of their own."""


class Rule(AnyRule):
    """Decides which draft tokens of a chain stand."""

    @property
    def draws_as_plain_decoding(self) -> bool:
        """Whether ``uniforms`` are the numbers with which plain decoding draws the tokens at these positions.

        Only for a rule whose ``accepted`` tells nothing of the numbers behind the first rejection: they serve again.
        The answer to a seed is then the same text whatever is drafted and however much of it.
        """
        return False

    @abstractmethod
    def verify(self, target: Law, proposal: Proposal, *, uniforms: Float64[Tensor, " horizon"]) -> Outcome:
        """Tests a proposal.

        Args:
            target: ``horizon + 1`` rows; row j is the target's law after the context and the first j draft tokens.
            proposal: The draft tokens and their law.
            uniforms: One fresh number in [0, 1) per draft token, shared with no other decision; see
                ``draws_as_plain_decoding`` for the exception.
        """
