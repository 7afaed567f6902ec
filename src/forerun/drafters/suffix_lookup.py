"""Draft by copying what followed the longest earlier occurrence of the last tokens, here or in earlier answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from forerun.distributions import PointLaw, Processing
from forerun.drafters.declarations import Dependence, Need, Saving
from forerun.drafters.drafter import Drafter, DrafterSession
from forerun.drafters.drawing import draw_chain
from forerun.drafters.network_drafter import ProposalPolicy
from forerun.drafters.past_outputs import PastOutputs
from forerun.drafters.stop import DraftStop
from forerun.drafters.suffix_automaton import NOTHING, Continuation, Match, SuffixAutomaton
from forerun.errors import ForerunError
from forerun.verification import Proposal


@final
@dataclass(frozen=True, slots=True)
class SuffixMatch:
    """How well the last tokens are known; known before anything is drafted, so a horizon may depend on it.

    Attributes:
        length: tokens of the longest suffix that has occurred with another token after it.
        frequency: how often it has.
    """

    length: int
    frequency: int


@final
class SuffixLookup(Drafter):
    """Suffix look-up over prompt and answer, and over answers of earlier requests.

    The source with the longest match drafts: the request itself before earlier answers of an equal match, newer
    answers before older ones. A draft ends before a position that nothing ever followed there, or where even the
    likeliest token would make the whole draft less likely than ``min_probability``. Every such decision is made before
    the token that it governs is drawn.

    Args:
        vocab_size: of the target.
        max_match: longest suffix that is searched, in tokens.
        max_horizon: most tokens copied in one round.
        match_factor: most tokens drafted for each token of the match; ``None`` for no such cap.
        min_probability: of a draft, by counts; 0 drafts as far as the horizon allows.
        policy: the continuation that followed most often, the latest of equals, as a certain token; or one drawn from
            the counts after the request's processing, which are then the law of the proposal.
        past: answers of earlier requests; each request reads what was there when its prompt was read, and adds its own
            answer at its end. ``None`` looks at the request alone.

    Raises:
        ForerunError: a number outside its range, or past outputs with another ``max_match``.

    References:
        Oliaro et al. 2024, arXiv:2411.04975 (SuffixDecoding), where the tree is a trie of limited depth; its settings
        in vLLM are ``match_factor`` 1 and ``min_probability`` 0.1.
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        max_match: int = 32,
        max_horizon: int = 16,
        match_factor: float | None = 1.0,
        min_probability: float = 0.1,
        policy: ProposalPolicy = ProposalPolicy.ARGMAX,
        past: PastOutputs | None = None,
    ) -> None:
        if max_match < 1 or max_horizon < 1:
            raise ForerunError(f"max_match and max_horizon must be at least 1, got {max_match} and {max_horizon}")
        if match_factor is not None and not match_factor > 0.0:
            raise ForerunError(f"match_factor is {match_factor}; give a number above 0, or None for no cap")
        if not 0.0 <= min_probability <= 1.0:
            raise ForerunError(f"min_probability is {min_probability}; give a number from 0 to 1")
        if past is not None and past.max_match != max_match:
            raise ForerunError(
                f"past outputs have max_match {past.max_match}, the drafter {max_match}; give one number"
            )
        self.vocab_size = vocab_size
        self.max_match = max_match
        self.match_factor = match_factor
        self.min_probability = min_probability
        self.policy = policy
        self.past = past
        self._max_horizon = max_horizon

    @property
    def name(self) -> str:
        """``suffix-lookup`` and the policy."""
        return f"suffix-lookup:{self.policy.value}"

    @property
    def max_horizon(self) -> int:
        """Most tokens copied in one round."""
        return self._max_horizon

    captured_layers = ()
    max_positions = None
    prefix_consistent = True  # a shorter copy is a prefix of a longer one
    dependence = Dependence.FULL
    saving = Saving.VERIFICATION
    needs: frozenset[Need] = frozenset()

    def new_session(self) -> SuffixLookupSession:
        """State for one request."""
        return SuffixLookupSession(self)


@final
class SuffixLookupSession(DrafterSession):
    """The automaton of one request, and where its last tokens stand in earlier answers.

    Args:
        drafter: whose session it is.
    """

    def __init__(self, drafter: SuffixLookup) -> None:
        self._drafter = drafter
        self._own = SuffixAutomaton(max_match=drafter.max_match)
        self._past: dict[SuffixAutomaton, Match] = {}

    @property
    def length(self) -> int:
        """Tokens taken in."""
        return self._own.num_tokens

    def extend(self, token_ids: Int[Tensor, " length"], features: Float[Tensor, "length layers hidden"]) -> None:
        """See :class:`ProposerSession`; features are ignored."""
        ids = token_ids.tolist()
        if not self.length and self._drafter.past is not None:  # a request begins when its prompt has been read
            self._past = {segment.automaton: NOTHING for segment in self._drafter.past.segments}
        for token_id in ids:
            self._own.push(token_id)
        for automaton, match in self._past.items():
            for token_id in ids[-self._drafter.max_match :]:  # older ones cannot be part of a match
                match = automaton.step(match, token_id)
            self._past[automaton] = match

    def end(self, answer_ids: Sequence[int]) -> None:
        """See :class:`ProposerSession`; later requests may copy from the answer."""
        if self._drafter.past is not None:
            self._drafter.past.add(answer_ids)

    def match_after(self, last_token: int) -> SuffixMatch:
        """How well the tokens up to ``last_token`` are known."""
        walk = self._walk(last_token)
        return SuffixMatch(walk.length, sum(each.count for each in walk.known()))

    def propose(
        self,
        last_token: int,
        horizon: int,
        processing: Processing,
        *,
        uniforms: Float[Tensor, " horizon"],
        stop: DraftStop | None = None,
    ) -> Proposal:
        """See :class:`DrafterSession`; copies of the most frequent token draw nothing."""
        drafter = self._drafter
        walk = self._walk(last_token)
        if drafter.match_factor is not None:
            horizon = min(horizon, int(drafter.match_factor * walk.length))
        if drafter.policy is ProposalPolicy.ARGMAX:
            copied = walk.most_frequent(horizon, drafter.min_probability)
            token_ids = torch.tensor(copied, dtype=torch.int64)
            return Proposal(token_ids=token_ids, law=PointLaw(token_ids, drafter.vocab_size))

        def next_logits(drafted: Int[Tensor, " drafted"]) -> Float[Tensor, "1 vocab"] | None:
            if len(drafted):
                walk.follow(int(drafted[-1]))
            options = walk.options(drafter.min_probability)
            if not options:
                return None
            logits = torch.full((1, drafter.vocab_size), -torch.inf, dtype=torch.float64)
            counts = torch.tensor([each.count for each in options], dtype=torch.float64)
            logits[0, [each.token_id for each in options]] = counts.log()
            return logits

        return draw_chain(next_logits, horizon, processing, vocab_size=drafter.vocab_size, uniforms=uniforms, stop=stop)

    def _walk(self, last_token: int) -> _Walk:
        walks = [_Walk(self._own, self._own.step(self._own.end, last_token))]
        walks += [_Walk(automaton, automaton.step(match, last_token)) for automaton, match in self._past.items()]
        return max(walks, key=lambda walk: walk.length)  # the first of equals


@final
class _Walk:
    """From a match forward through one automaton.

    Args:
        automaton: where the match is.
        match: of the committed tokens.
    """

    def __init__(self, automaton: SuffixAutomaton, match: Match) -> None:
        self._automaton = automaton
        self._match = automaton.followed(match)
        self._counts: dict[int, int] = {}  # of the options
        self._probability = 1.0  # of the tokens followed

    @property
    def length(self) -> int:
        """Tokens of the match."""
        return self._match.length

    def known(self) -> list[Continuation]:
        """What followed the match."""
        return self._automaton.continuations(self._match)

    def options(self, min_probability: float) -> list[Continuation]:
        """What followed the match, unless even the likeliest token makes the draft too improbable."""
        options = self.known()
        self._counts = {each.token_id: each.count for each in options}
        if not options:
            return []
        likeliest = max(self._counts.values()) / sum(self._counts.values())
        return options if self._probability * likeliest >= min_probability else []

    def follow(self, token_id: int) -> None:
        """Go on with one of the options."""
        self._probability *= self._counts[token_id] / sum(self._counts.values())
        self._match = self._automaton.followed(self._automaton.step(self._match, token_id))

    def most_frequent(self, horizon: int, min_probability: float) -> list[int]:
        """The most frequent continuations one after the other; the latest of equals."""
        copied: list[int] = []
        while len(copied) < horizon and (options := self.options(min_probability)):
            copied.append(max(options, key=lambda each: (each.count, each.recent)).token_id)
            self.follow(copied[-1])
        return copied
