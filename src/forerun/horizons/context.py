"""What a horizon policy is told before drafting, what it answers, and what it learns afterwards.

Nothing here may hold a value of the current round's drafts or target outputs before they are verified: a horizon that
depends on them would change the output law (DESIGN section 1, rule 3).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from forerun.errors import ForerunError
from forerun.horizons.signals import TokenClass
from forerun.horizons.stop import DrawnToken, StopRule


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RoundContext:
    """What is known before the first token of a round is drafted.

    Attributes:
        limit: largest horizon allowed in this round (by the drafter, the token cap and the context length); may be 0.
        context_length: committed tokens so far, prompt included.
        generated: committed tokens after the prompt.
        temperature: of the sampling parameters; 0 means greedy.
        target_entropy: nats, of the target law that produced the last committed token; None in the first round.
        target_top_prob: largest probability of that law; None in the first round.
        target_margin: largest minus second largest probability of that law; None in the first round.
        last_token_repeats: the last committed token stands in the context before (False where nobody looked).
        token_class: of the last committed token; None where nobody looked or there is no text.
        suffix_match: length of the longest end of the context that stands in the context before, in tokens, as far as
            the engine follows it; None where nobody looked.
        hidden: the target's hidden state behind the last committed token, normalised and projected to a few numbers of
            about unit variance; None where nobody looked.
        draft_margins: largest minus second largest log-probability of the draft law of positions 1, 2, ...; only where
            these laws are known before any draft is sampled. None otherwise.
        batch_size: requests decoded together, this one included.

    Raises:
        ForerunError: a negative count or a number that is not finite.
    """

    limit: int
    context_length: int
    generated: int
    temperature: float
    target_entropy: float | None = None
    target_top_prob: float | None = None
    target_margin: float | None = None
    last_token_repeats: bool = False
    token_class: TokenClass | None = None
    suffix_match: int | None = None
    hidden: tuple[float, ...] | None = None
    draft_margins: tuple[float, ...] | None = None
    batch_size: int = 1

    def __post_init__(self) -> None:
        if self.limit < 0 or self.context_length < 0 or self.generated < 0:
            raise ForerunError(
                "limit, context_length and generated count tokens and cannot be negative, got "
                f"{self.limit}, {self.context_length}, {self.generated}"
            )
        for value in (self.temperature, self.target_entropy, self.target_top_prob, self.target_margin):
            if value is not None and not math.isfinite(value):
                raise ForerunError(f"a temperature, entropy, top probability or margin is {value}: give finite numbers")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A policy's answer for one round, with what is needed to learn from it and to replay it.

    Attributes:
        horizon: number of tokens to draft.
        planned: the horizon that was chosen before the exploration coin was looked at.
        explored: the coin came up, so the limit is drafted instead of `planned`.
        propensities: P(position j is drafted), j = 1..limit, over the coin alone.
        survival: predicted P(first j drafts accepted), j = 1..limit; empty where the policy predicts none.
        features: the scaled features behind the prediction; empty where the policy uses none.
        ratio_horizon: what the objective G / C would plan; None where the policy has no such objective.
        renewal_horizon: what the objective G - lambda C would plan; None likewise.
        stop: may end the draft before the horizon; None drafts the whole horizon.
        branching: of a tree, the children of every node at depth 1..horizon; None leaves the shape to the drafter.
    """

    horizon: int
    planned: int
    explored: bool
    propensities: tuple[float, ...]
    survival: tuple[float, ...] = ()
    features: tuple[float, ...] = ()
    ratio_horizon: int | None = None
    renewal_horizon: int | None = None
    stop: StopRule | None = None
    branching: tuple[int, ...] | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RoundFeedback:
    """What verification showed about one round.

    A draft may have fewer tokens than `choice.horizon`: a lookup finds a short match, a stop ends it. The two
    probability tuples have one entry for each token that was really drafted, and for a tree one for each depth that
    was tried: those that its path reached, and the one where no sibling stood.

    Attributes:
        choice: the policy's answer for this round.
        context: what the policy was told.
        accepted: drafted tokens accepted by the verifier, before stop tokens or caps cut the round.
        accept_probabilities: factor by which each drafted token multiplies the probability that the draft up to it
            stands; for token-level verification min(1, target / draft) given the drafted prefix.
        overlaps: the same averaged over the draft law of that position, given the drafted prefix; for token-level
            verification 1 - TV between target and draft law.
        seconds: duration of the whole round (controller, drafting, verification, commit; prefill excluded).
        censored: number of drafted positions whose outcome counts; None when all do. A position counts up to and
            including the first drafted token that ends the text (stop token, stop string, cap), **whether or not it was
            accepted**: a cut that looks at the accept bits would bias the soft labels.
        draft_seconds: of `seconds`, spent on drafting this request's tokens; None where nobody measured.
        verify_seconds: of `seconds`, the target's pass, other requests' tokens in it included; None likewise.
        verify_width: tokens in that pass, of all requests; None likewise.
        drawn: statistics of the drafted tokens; empty unless the choice has a stop.
        tree_depth: of a tree, its longest path, tried or not: what was paid for; None for chains.

    Raises:
        ForerunError: lengths or counts that contradict each other, or a duration that is not above 0.
    """

    choice: Choice
    context: RoundContext
    accepted: int
    accept_probabilities: tuple[float, ...]
    overlaps: tuple[float, ...]
    seconds: float
    censored: int | None = None
    draft_seconds: float | None = None
    verify_seconds: float | None = None
    verify_width: int | None = None
    drawn: tuple[DrawnToken, ...] = ()
    tree_depth: int | None = None

    def __post_init__(self) -> None:
        drafted = len(self.accept_probabilities)
        if drafted > self.choice.horizon or len(self.overlaps) != drafted:
            raise ForerunError(
                f"horizon {self.choice.horizon} came back with {drafted} accept probabilities and {len(self.overlaps)} "
                "overlaps: give one of each for every drafted token"
            )
        if self.drawn and len(self.drawn) != drafted:
            raise ForerunError(f"{drafted} tokens drafted, with statistics of {len(self.drawn)}: give them for all")
        if not 0 <= self.accepted <= drafted:
            raise ForerunError(f"{self.accepted} tokens accepted of {drafted} drafted")
        if self.censored is not None and not 0 <= self.censored <= drafted:
            raise ForerunError(f"{self.censored} positions count of {drafted} drafted")
        if not (self.seconds > 0.0 and math.isfinite(self.seconds)):
            raise ForerunError(f"a round took {self.seconds} seconds: durations must be finite and above 0")

    @property
    def drafted(self) -> int:
        """Number of tokens that were really drafted; of a tree, depths that were tried."""
        return len(self.accept_probabilities)

    @property
    def depth(self) -> int:
        """Most drafts that could have been accepted: what the round's cost belongs to."""
        return self.drafted if self.tree_depth is None else self.tree_depth

    @property
    def paid_depth(self) -> int:
        """Tokens in a row whose drafting was paid: the whole limit where laws were told before the horizon."""
        return self.depth if self.context.draft_margins is None else self.context.limit

    @property
    def counted(self) -> int:
        """Number of drafted positions whose outcome counts."""
        return self.drafted if self.censored is None else self.censored

    @property
    def emitted(self) -> int:
        """Tokens that the round added to the answer, the correction or bonus included, a stop's cut respected."""
        return self.accepted + 1 if self.censored is None else min(self.accepted + 1, max(self.censored, 1))

    @property
    def rejected_at(self) -> int | None:
        """1-based position of the rejection, None when there was none among the positions that count."""
        return self.accepted + 1 if self.accepted < self.counted else None
