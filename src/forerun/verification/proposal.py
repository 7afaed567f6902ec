"""What a drafter hands over: tokens, and the law they were really drawn from."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Int64
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
    _usable: Bool[Tensor, " horizon"] | None = field(default=None, init=False, repr=False)

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
    def drawn(cls, token_ids: Int64[Tensor, " horizon"], law: Law, usable: Bool[Tensor, " horizon"]) -> "Proposal":
        """Tokens that came out of ``law.sample``, row by row, and that nobody has looked at yet.

        Nothing is checked, so the host need not wait for the device; `read` is due before verification.

        Args:
            token_ids: Where they were drawn.
            law: One row per token.
            usable: Whether the row is a law; the draft ends before the first that is none.
        """
        return cls._trusted(token_ids, law, usable=usable)

    @property
    def was_read(self) -> bool:
        """Whether it is known which rows are laws."""
        return self._usable is None

    def read(self) -> "Proposal":
        """The same on the host, up to the first row that is no law; itself where that has been done."""
        if self._usable is None:
            return self
        token_ids, flags = torch.stack([self.token_ids, self._usable.long()]).cpu()
        count = int(flags.cumprod(0).sum())
        return self._trusted(token_ids[:count], self.law.rows(0, count), cut_short=count < self.horizon)

    def first(self, count: int) -> "Proposal":
        """The first ``count`` tokens, or all where there are fewer, with the laws they were drawn from.

        Keeps the output law where ``count`` does not depend on the tokens that it leaves out or on the last one kept.
        """
        if count >= self.horizon:
            return self
        usable = None if self._usable is None else self._usable[:count]
        return self._trusted(self.token_ids[:count], self.law.rows(0, count), usable=usable)

    @classmethod
    def _trusted(
        cls,
        token_ids: Int64[Tensor, " horizon"],
        law: Law,
        *,
        cut_short: bool = False,
        usable: Bool[Tensor, " horizon"] | None = None,
    ) -> "Proposal":
        """Without the checks of ``__post_init__``, which read the tokens."""
        proposal = cls.__new__(cls)
        for name, value in (("token_ids", token_ids), ("law", law), ("cut_short", cut_short), ("_usable", usable)):
            object.__setattr__(proposal, name, value)
        return proposal

    @property
    def horizon(self) -> int:
        """Number of draft tokens."""
        return self.token_ids.shape[0]
