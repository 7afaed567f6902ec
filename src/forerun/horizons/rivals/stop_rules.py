"""Published rules that end a draft while it is drawn, and the forbidden kind that drops what it has seen.

"Kept": the token that made the rule stop stays in the draft. Rules that stop before a draw look at its law alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import final

from forerun.horizons.stop import DraftStatistics, DrawnToken, StopRule


class KeptTokenRule(StopRule):
    """Stops behind a token that it keeps."""

    def draws(self, drawn: Sequence[DrawnToken], law: DraftStatistics) -> bool:
        """Always."""
        return True


@final
@dataclass(frozen=True, slots=True)
class TokenProbability(KeptTokenRule):
    """Stop behind a token whose own draft probability is below the threshold (transformers)."""

    threshold: float

    def continues(self, drawn: Sequence[DrawnToken]) -> bool:
        """The token's probability is at least the threshold."""
        return drawn[-1].prob >= self.threshold


@final
@dataclass(frozen=True, slots=True)
class TopProbability(KeptTokenRule):
    """Stop behind a token whose law had a largest probability below the threshold (Kangaroo, max-confidence)."""

    threshold: float

    def continues(self, drawn: Sequence[DrawnToken]) -> bool:
        """The largest probability is at least the threshold."""
        return drawn[-1].law.top_prob >= self.threshold


@final
@dataclass(frozen=True, slots=True)
class EntropyBound(KeptTokenRule):
    """Stop behind a token whose law had sqrt(gamma H) above the threshold (SVIP)."""

    gamma: float
    threshold: float

    def continues(self, drawn: Sequence[DrawnToken]) -> bool:
        """sqrt(gamma H) <= threshold."""
        return sqrt(self.gamma * drawn[-1].law.entropy) <= self.threshold


@final
@dataclass(frozen=True, slots=True)
class EntropyRise(KeptTokenRule):
    """Stop behind a token whose law had an entropy this much above that of the token before (nats)."""

    rise: float

    def continues(self, drawn: Sequence[DrawnToken]) -> bool:
        """The first token has nothing to compare with."""
        return len(drawn) < 2 or drawn[-1].law.entropy - drawn[-2].law.entropy <= self.rise


@final
@dataclass(frozen=True, slots=True)
class Margin(KeptTokenRule):
    """Stop behind a token whose law had a top-2 margin below the threshold."""

    threshold: float

    def continues(self, drawn: Sequence[DrawnToken]) -> bool:
        """The margin is at least the threshold."""
        return drawn[-1].law.margin >= self.threshold


@final
@dataclass(frozen=True, slots=True)
class AcceptanceBound(StopRule):
    """Stop before a draw whose law promises less: 1 - sqrt(gamma H) < threshold (AdaEDL).

    The first token is always drawn: a round without drafts would teach nothing.
    """

    gamma: float
    threshold: float

    def draws(self, drawn: Sequence[DrawnToken], law: DraftStatistics) -> bool:
        """1 - sqrt(gamma H) >= threshold."""
        return not drawn or 1.0 - sqrt(self.gamma * law.entropy) >= self.threshold

    def continues(self, drawn: Sequence[DrawnToken]) -> bool:
        """The next law decides."""
        return True


@final
@dataclass(frozen=True, slots=True)
class TopProbabilityGate(StopRule):
    """Stop before a draw whose law has a largest probability below `p_min`; give drafts below `n_min` up (llama.cpp).

    Giving a draft up drops tokens that were looked at, so `n_min` above 1 is exact only with rules that bear any
    truncation, or for drafts without randomness (which llama.cpp's are).
    """

    p_min: float
    n_min: int

    @property
    def exact(self) -> bool:
        """Only if no draft is given up."""
        return self.n_min <= 1

    def draws(self, drawn: Sequence[DrawnToken], law: DraftStatistics) -> bool:
        """The largest probability is at least p_min."""
        return law.top_prob >= self.p_min

    def continues(self, drawn: Sequence[DrawnToken]) -> bool:
        """The next law decides."""
        return True

    def submits(self, drawn: Sequence[DrawnToken]) -> int:
        """All or nothing."""
        return len(drawn) if len(drawn) >= self.n_min else 0


@final
@dataclass(frozen=True, slots=True)
class DropBelow(StopRule):
    """Negative control: draws everything, and submits only what stands before the first unlikely token.

    Cuts where the product of the tokens' own draft probabilities falls below the threshold, as a vLLM pull request did
    (44885) for parallel drafters.
    """

    threshold: float

    @property
    def exact(self) -> bool:
        """The token that decides is the one that goes."""
        return False

    def draws(self, drawn: Sequence[DrawnToken], law: DraftStatistics) -> bool:
        """Always."""
        return True

    def continues(self, drawn: Sequence[DrawnToken]) -> bool:
        """Always."""
        return True

    def submits(self, drawn: Sequence[DrawnToken]) -> int:
        """Tokens before the product falls below the threshold."""
        product = 1.0
        for count, token in enumerate(drawn):
            product *= token.prob
            if product < self.threshold:
                return count
        return len(drawn)


@final
@dataclass(frozen=True, slots=True)
class NeverStop(KeptTokenRule):
    """Draws everything: for policies that only want to see the statistics."""

    def continues(self, drawn: Sequence[DrawnToken]) -> bool:
        """Always."""
        return True
