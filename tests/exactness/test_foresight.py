"""Horizons chosen from the margins of a block that is known but not yet drawn, through the engine and by AMTP.

The engine decodes as it does for users; only its random numbers are ours: each runs over the middles of four equal
parts, and all probabilities and acceptance ratios are multiples of a quarter, so the law is exact.
"""

import json
import math
import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import final
from unittest.mock import patch

import torch
from jaxtyping import Float
from torch import Tensor

from forerun.distributions import Law, Processing, Purpose, SamplingParams, Streams
from forerun.drafters import Dependence, Drafter, DraftStop, ForeseeingSession, Need, Saving
from forerun.drafters.drawing import draw_rows
from forerun.engine import generate
from forerun.horizons import (
    AMTP,
    Choice,
    CostTable,
    FeatureLevel,
    HorizonPolicy,
    Logistic,
    RoundContext,
    RoundFeedback,
    Signal,
)
from forerun.horizons.rivals import dropping
from forerun.models import TableTarget
from forerun.verification import Proposal, TokenLevel
from tests.exactness.enumerate import (
    Horizons,
    PreDraft,
    Round,
    Tokens,
    chain_law,
    distance,
    generation_law,
    run_law,
)
from tests.exactness.tables import constant, plain_model, processed, random_logits
from tests.support.drafters import CountingSession
from tests.support.speed import without_shape_checks

TOLERANCE = 1e-12
CLEARLY_BIASED = 1e-3
GRID = 4
VOCAB = 3
TARGET_PROBS = [(0.25, 0.25, 0.5), (0.25, 0.5, 0.25), (0.5, 0.25, 0.25)]
DRAFT_PROBS = [(0.5, 0.5, 0.0), (0.5, 0.25, 0.25), (0.25, 0.5, 0.25)]
"""By the last committed token; every second draft is drawn from the next row, whatever the first one was."""
UNSURE = 0.3  # the margins are 0 and log 2

Uniform = Callable[[Hashable], float]


def logits_of(probs: Sequence[float]) -> Float[Tensor, " vocab"]:
    return torch.tensor(probs, dtype=torch.float64).log()


@final
@dataclass(frozen=True)
class Heads(Drafter):
    """Independent heads on the last committed token. With a number to peek at, its margins are no margins."""

    peek: Uniform | None = None

    name = "heads"
    max_horizon = 2
    max_positions = None
    captured_layers = ()
    dependence = Dependence.NONE
    saving = Saving.BOTH
    needs: frozenset[Need] = frozenset()
    prefix_consistent = True
    foresees = True

    def new_session(self) -> "HeadsSession":
        """Starts empty."""
        return HeadsSession(self)


@final
class HeadsSession(CountingSession, ForeseeingSession):
    """Draws from rows that the last token settles."""

    def __init__(self, drafter: Heads) -> None:
        """Starts empty."""
        super().__init__()
        self._drafter = drafter

    def rows(self, last_token: int) -> Float[Tensor, "2 vocab"]:
        """Of both places."""
        return torch.stack([logits_of(DRAFT_PROBS[(last_token + place) % VOCAB]) for place in range(2)])

    def foresee(self, last_token: int, limit: int) -> Float[Tensor, " rows"]:
        """Honest margins; or, the bug to be caught, what the law says about the token that will be drawn."""
        rows = self.rows(last_token)[:limit]
        if self._drafter.peek is None:
            first, second = rows.topk(2).values.unbind(-1)
            return first - second
        number = torch.tensor([self._drafter.peek((Purpose.DRAFT, self._length + 1, 0))], dtype=torch.float64)
        drawn = int(Processing(SamplingParams(), [0]).law(rows[:1]).sample(uniforms=number))
        return torch.tensor([1.0 if drawn == 0 else 0.0, 0.0][:limit], dtype=torch.float64)

    def propose(
        self,
        last_token: int,
        horizon: int,
        processing: Processing,
        *,
        uniforms: Float[Tensor, " horizon"],
        stop: DraftStop | None = None,
    ) -> Proposal:
        """Draws from the rows."""
        return draw_rows(self.rows(last_token)[:horizon], processing, uniforms=uniforms, stop=stop)


@final
class BySureness(HorizonPolicy):
    """Drafts where the first margin is large enough, or where it is not."""

    def __init__(self, *, sure: bool) -> None:
        """Stores the side."""
        self.sure = sure
        self.horizons: set[int] = set()

    name = "by-sureness"
    wants = frozenset({Signal.DRAFT_MARGINS})

    def propose(self, context: RoundContext, *, uniform: float) -> Choice:
        """All or nothing."""
        margins = context.draft_margins or ()
        assert len(margins) == context.limit, "margins of all positions that may be drafted"
        horizon = context.limit if margins and (margins[0] > UNSURE) is self.sure else 0
        self.horizons.add(horizon)
        propensities = (1.0,) * horizon + (0.0,) * (context.limit - horizon)
        return Choice(horizon=horizon, planned=horizon, explored=False, propensities=propensities)

    def observe(self, feedback: RoundFeedback) -> None:
        """Learns nothing."""

    def clone(self) -> "BySureness":
        """The same."""
        return BySureness(sure=self.sure)


TARGET_TABLE = TableTarget(lambda prefix: logits_of(TARGET_PROBS[prefix[-1] if prefix else 0]), vocab_size=VOCAB)


STARTS = {0: (0, 0.1), 1: (1, 0.6)}
"""For the first token of the answer: a prompt and a number that settle it. Behind 0 the draft law is unsure."""


def missed_by_engine(policy: HorizonPolicy, first: int, *, peeks: bool = False) -> float:
    """How far the next two tokens of an answer are from plain decoding's law, one draft a round at most."""
    prompt, settled = STARTS[first]

    def program(uniform: Uniform) -> Tokens:
        def middle(key: Hashable) -> float:
            return uniform(key) + 0.5 / GRID

        def numbers(_: Streams, purpose: Purpose, position: int, count: int) -> Tensor:
            if purpose is Purpose.EXPLORE or position == 1:  # no coin is looked at; the first token is settled
                return torch.full((count,), settled, dtype=torch.float64)
            return torch.tensor([middle((purpose, position, place)) for place in range(count)], dtype=torch.float64)

        with patch.object(Streams, "uniforms", numbers):
            drafter = Heads(middle if peeks else None)
            answer = generate(TARGET_TABLE, [prompt], drafter=drafter, horizon=policy, max_new_tokens=3)
            assert answer.token_ids[0] == first
            return tuple(answer.token_ids[1:])

    with without_shape_checks():
        law = run_law(program, GRID)
    return distance(law, chain_law(lambda context: TARGET_PROBS[context[-1]], (first,), 2))


def test_the_engine_is_exact_where_margins_decide() -> None:
    """All numbers of whole answers, behind a sure and an unsure law. Catches a block drawn twice, or told too late."""
    for sure in (True, False):
        policy = BySureness(sure=sure)
        for first in STARTS:
            assert missed_by_engine(policy, first) <= TOLERANCE
        assert policy.horizons == {0, 1}


def test_margins_that_know_what_is_drawn_are_red() -> None:
    """The wiring bug: margins are taken after sampling. The same policy is then biased, by one part in eight or so."""
    assert missed_by_engine(BySureness(sure=True), 1, peeks=True) > CLEARLY_BIASED


def test_dropping_a_token_for_its_own_probability_is_red() -> None:
    """The negative control over the same drafter, which is exact where margins decide."""
    assert missed_by_engine(dropping(threshold=0.4), 1) > CLEARLY_BIASED


TARGET_LOGITS = random_logits(21, 2, 2)
TARGET = processed(TARGET_LOGITS, SamplingParams())
BY_PLACE = [constant(probs) for probs in ((0.9, 0.1), (0.55, 0.45), (0.3, 0.7))]
BEGIN: Tokens = (1, 1, 0)
LIMIT = 2


def draft_law(prefix: Tokens) -> Law:
    """By the token's absolute place alone, so the laws of a block are known before it is drawn."""
    return BY_PLACE[len(prefix) % len(BY_PLACE)](prefix)


def margins_after(tokens: Tokens) -> tuple[float, ...]:
    laws = [draft_law((*tokens, *(0,) * place)).dense()[0].tolist() for place in range(LIMIT)]
    return tuple(abs(math.log(first / second)) for first, second in laws)


def context_after(tokens: Tokens, margins: tuple[float, ...] | None = None) -> RoundContext:
    return RoundContext(
        limit=LIMIT,
        context_length=len(tokens),
        generated=len(tokens) - len(BEGIN),
        temperature=1.0,
        draft_margins=margins_after(tokens) if margins is None else margins,
    )


def new_amtp() -> AMTP:
    """Features of every level, the margins included; the block is paid for at every horizon."""
    costs = CostTable.from_profile([(0, 1.5), (1, 2.3), (2, 3.1)])
    learner = Logistic(learning_rate=0.8)
    return AMTP(costs=costs, epsilon=0.25, warmup_rounds=0, learner=learner, features=FeatureLevel.F4)


def resumed(state: Hashable) -> AMTP:
    amtp = new_amtp()
    amtp.load_state_dict(json.loads(str(state)))
    return amtp


@cache
def taught() -> str:
    """A state that has learned: drafts stand where the law is sure, and only there."""
    amtp, rng = new_amtp(), random.Random(0)
    for _ in range(200):
        sure = [rng.random() < 0.5 for _ in range(LIMIT)]
        context = context_after(BEGIN, margins=tuple(2.5 if one else 0.1 for one in sure))
        value = tuple(0.999 if one else 0.001 for one in sure)
        accepted = sure.index(False) if False in sure else LIMIT
        choice = amtp.propose(context, uniform=0.0)
        amtp.observe(
            RoundFeedback(choice=choice, context=context, accepted=accepted, accept_probabilities=value,
                          overlaps=value, seconds=3.1)
        )  # fmt: skip
    return json.dumps(amtp.state_dict())


@cache
def choices(state: Hashable, context: RoundContext) -> list[Choice]:
    """Over four equal parts of the coin."""
    return [resumed(state).propose(context, uniform=quarter / 4) for quarter in range(4)]


def policy(info: PreDraft) -> dict[int, float]:
    law = dict.fromkeys(range(LIMIT + 1), 0.0)
    for choice in choices(info.memory, context_after(info.context)):
        law[choice.horizon] += 0.25
    return {horizon: weight for horizon, weight in law.items() if weight > 0.0}


def learn(state: Hashable, told: Round) -> str:
    context = context_after(told.context)
    choice = next(each for each in choices(state, context) if each.horizon >= len(told.drafted))
    amtp = resumed(state)
    amtp.observe(
        RoundFeedback(choice=choice, context=context, accepted=told.accepted, overlaps=told.overlaps,
                      accept_probabilities=told.accept_probabilities, seconds=1.5 + 0.8 * len(told.drafted))
    )  # fmt: skip
    return json.dumps(amtp.state_dict())


def missed(horizons: Horizons) -> float:
    law = generation_law(
        target=TARGET, draft=draft_law, rule=TokenLevel(), horizons=horizons, prompt=BEGIN, num_tokens=3
    )
    return distance(law, chain_law(plain_model(TARGET_LOGITS, SamplingParams()), BEGIN, 3))


def test_amtp_that_sees_margins_and_learns_is_exact() -> None:
    """Catches a margin of another round or place that lets a token decide about itself."""
    with without_shape_checks():
        assert missed(Horizons(policy, memory=taught(), remember=learn)) <= TOLERANCE
    tokens = [BEGIN, (*BEGIN, 0), (*BEGIN, 0, 1)]
    assert len({horizon for each in tokens for horizon in policy(PreDraft(each, taught()))}) == 3


def test_amtp_that_takes_the_tokens_own_probability_for_a_margin_is_red() -> None:
    """The whole block is drawn, and the horizon looks at it: a policy of the same kind, fed one step too late."""

    def cut(info: PreDraft, drafted: Tokens) -> int:
        own = [
            float(draft_law((*info.context, *drafted[:place])).dense()[0, token]) for place, token in enumerate(drafted)
        ]
        margins = tuple(2.5 if probability > 0.5 else 0.1 for probability in own)
        return resumed(taught()).propose(context_after(info.context, margins), uniform=0.99).horizon

    with without_shape_checks():
        assert missed(Horizons(lambda _: {LIMIT: 1.0}, cut=cut)) > CLEARLY_BIASED
