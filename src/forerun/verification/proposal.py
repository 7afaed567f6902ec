"""What a drafter hands over: tokens, and the law they were really drawn from."""

from dataclasses import dataclass

from jaxtyping import Int64
from torch import Tensor

from forerun.distributions import Law
from forerun.errors import ForerunError


@dataclass(frozen=True)
class Proposal:
    """A chain of draft tokens with their realised law.

    Row j of ``law`` is the law from which token j was drawn, given the context and tokens before j, after all
    processing. A token that was chosen without randomness has a ``PointLaw`` row.

    Attributes:
        token_ids: The draft tokens; there may be none.
        law: One row per token.
        cut_short: The drafter's next row of logits was no law (NaN, say), so the draft ended before it.

    Raises:
        ForerunError: Rows and tokens differ in number, an id lies outside the vocabulary, or a token has probability
            zero under its law (then it was not drawn from it).
    """

    token_ids: Int64[Tensor, " horizon"]
    law: Law
    cut_short: bool = False

    def __post_init__(self) -> None:
        """Refuses tokens that the law cannot have produced."""
        if len(self.law) != self.horizon:
            raise ForerunError(f"proposal has {self.horizon} tokens but a law of {len(self.law)} rows; give one each")
        if not bool(((self.token_ids >= 0) & (self.token_ids < self.law.vocab_size)).all()):
            raise ForerunError(
                f"proposed ids {self.token_ids.tolist()} do not all lie in a vocabulary of {self.law.vocab_size}"
            )
        drawable = self.law.prob_of(self.token_ids) > 0.0
        if not bool(drawable.all()):
            position = int(drawable.logical_not().nonzero()[0, 0])
            raise ForerunError(
                f"draft token {int(self.token_ids[position])} at position {position} has probability 0 under the "
                "proposal's law; hand over the law that was sampled, after all processing"
            )

    @classmethod
    def drawn(cls, token_ids: Int64[Tensor, " horizon"], law: Law, *, cut_short: bool) -> "Proposal":
        """Tokens that came out of ``law.sample``, row by row: nothing to check, so the host waits for no device."""
        proposal = cls.__new__(cls)
        object.__setattr__(proposal, "token_ids", token_ids)
        object.__setattr__(proposal, "law", law)
        object.__setattr__(proposal, "cut_short", cut_short)
        return proposal

    def first(self, count: int) -> "Proposal":
        """The first ``count`` tokens, or all where there are fewer, with the laws they were drawn from.

        Keeps the output law where ``count`` does not depend on the tokens that it leaves out or on the last one kept.
        """
        if count >= self.horizon:
            return self
        return Proposal.drawn(self.token_ids[:count], self.law.rows(0, count), cut_short=False)

    @property
    def horizon(self) -> int:
        """Number of draft tokens."""
        return self.token_ids.shape[0]
