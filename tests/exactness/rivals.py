"""A real horizon policy, stop rule and all, inside the enumeration: every branch goes on from what it learned."""

import copy
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import final

from forerun.horizons import (
    Choice,
    DraftStatistics,
    DrawnToken,
    HorizonPolicy,
    RoundContext,
    RoundFeedback,
)
from forerun.verification import Rule
from tests.exactness.enumerate import Horizons, Model, PreDraft, Round, Tokens, chain_law, distance, generation_law

COINS = (0.02, 0.35, 0.65, 0.95)
"""Stand for all coins: which ones come up how often cannot matter, as long as they are independent of the draft."""


@final
class Enumerated:
    """A policy as horizons in the sense of ``enumerate``.

    Args:
        policy: as it stands before the first round.
        target: whose last law the context shows.
        draft: of the drafts, at temperature 1; stop rules see its numbers.
        limit: of every round.
        confidence: of the drafter, from the tokens before the draft in question.
    """

    def __init__(
        self,
        policy: HorizonPolicy,
        *,
        target: Model,
        draft: Model,
        limit: int,
        confidence: Callable[[Tokens], float] | None = None,
    ) -> None:
        """Nothing runs yet."""
        self._target, self._draft, self._limit, self._confidence = target, draft, limit, confidence
        self._policies: dict[tuple[RoundFeedback, ...], HorizonPolicy] = {(): policy}
        self.lengths: set[int] = set()
        self._statistics = cache(self._statistics_after)
        self._choices = cache(self._all_choices)

    @property
    def horizons(self) -> Horizons:
        """For ``generation_law``; the memory is the list of all rounds so far."""
        return Horizons(self._choose, memory=(), remember=self._learn, stop=self._stops, cut=self._submitted)

    def _choose(self, info: PreDraft) -> dict[Choice, float]:
        return self._choices(info.context, info.memory)

    def _all_choices(self, tokens: Tokens, history: tuple[RoundFeedback, ...]) -> dict[Choice, float]:
        policy, context = self._policies[history], self._context(tokens)
        law: dict[Choice, float] = {}
        for coin in COINS:
            choice = policy.propose(context, uniform=coin)
            law[choice] = law.get(choice, 0.0) + 1.0 / len(COINS)
        return law

    def _context(self, tokens: Tokens) -> RoundContext:
        probs = sorted(self._target(tokens[:-1]).dense()[0].tolist(), reverse=True)
        return RoundContext(
            limit=self._limit, context_length=len(tokens), generated=len(tokens), temperature=1.0,
            target_entropy=-sum(prob * math.log(prob) for prob in probs if prob > 0.0), target_top_prob=probs[0],
            target_margin=probs[0] - probs[1],
        )  # fmt: skip

    def _stops(self, info: PreDraft, drafted: Tokens) -> bool:
        assert isinstance(info.chosen, Choice)
        rule = info.chosen.stop
        if rule is None:
            return False
        drawn = self._drawn(info.context, drafted)
        if drawn and not rule.continues(drawn):
            return True
        return not rule.draws(drawn, self._statistics(info.context + drafted))

    def _submitted(self, info: PreDraft, drafted: Tokens) -> int:
        assert isinstance(info.chosen, Choice)
        rule = info.chosen.stop
        count = len(drafted) if rule is None else rule.submits(self._drawn(info.context, drafted))
        self.lengths.add(count)
        return count

    def _drawn(self, context: Tokens, drafted: Sequence[int]) -> list[DrawnToken]:
        tokens = []
        for place, token in enumerate(drafted):
            prefix = context + tuple(drafted[:place])
            prob = float(self._draft(prefix).dense()[0, token])
            tokens.append(DrawnToken(self._statistics(prefix), prob))
        return tokens

    def _statistics_after(self, prefix: Tokens) -> DraftStatistics:
        law = self._draft(prefix)
        first, second, *_ = sorted(law.dense()[0].tolist(), reverse=True)
        confidence = None if self._confidence is None else self._confidence(prefix)
        return DraftStatistics(
            entropy=float(law.entropy()), top_prob=first, margin=first - second, confidence=confidence
        )

    def _learn(self, memory: object, told: Round) -> tuple[RoundFeedback, ...]:
        history = memory
        assert isinstance(history, tuple) and isinstance(told.chosen, Choice)
        drawn = () if told.chosen.stop is None else tuple(self._drawn(told.context, told.drafted))
        feedback = RoundFeedback(
            choice=told.chosen, context=self._context(told.context), accepted=told.accepted, overlaps=told.overlaps,
            accept_probabilities=told.accept_probabilities, drawn=drawn,
            seconds=1.0 + 0.2 * len(told.drafted) + 0.01 * sum(told.drafted),
        )  # fmt: skip
        after = (*history, feedback)
        if after not in self._policies:
            self._policies[after] = copy.deepcopy(self._policies[history])
            self._policies[after].observe(feedback)
        return after


def missed_by(
    policy: HorizonPolicy,
    rule: Rule,
    *,
    target: Model,
    draft: Model,
    expected: Callable[[Tokens], Sequence[float]],
    prompt: Tokens,
    num_tokens: int,
    limit: int,
    confidence: Callable[[Tokens], float] | None = None,
) -> tuple[float, set[int]]:
    """How far a generation under the policy is from the target's law, and which numbers of drafts were submitted."""
    enumerated = Enumerated(policy, target=target, draft=draft, limit=limit, confidence=confidence)
    law = generation_law(
        target=target, draft=draft, rule=rule, horizons=enumerated.horizons, prompt=prompt, num_tokens=num_tokens
    )
    return distance(law, chain_law(expected, prompt, num_tokens)), enumerated.lengths
