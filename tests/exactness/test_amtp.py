"""The real AMTP, learning online, keeps the law; the same AMTP with a feature of the current draft does not.

AMTP's state travels through the enumeration as JSON, so every branch continues from what it really learned.
"""

import json
import random
from collections.abc import Hashable
from functools import cache
from math import inf
from typing import Any

import pytest

from forerun.distributions import SamplingParams
from forerun.horizons import (
    AMTP,
    Choice,
    CostTable,
    DirectSurvival,
    FeatureLevel,
    Linear,
    Logistic,
    Objective,
    RoundContext,
    RoundFeedback,
    Schedule,
)
from forerun.verification import TokenLevel
from tests.exactness.enumerate import (
    Horizons,
    PreDraft,
    Round,
    Tokens,
    chain_law,
    distance,
    generation_law,
)
from tests.exactness.tables import plain_model, processed, random_logits
from tests.support.speed import without_shape_checks

TOLERANCE = 1e-12
CLEARLY_BIASED = 1e-3
LIMIT = 2
PROMPT: Tokens = (1, 1, 0)

TARGET_LOGITS = random_logits(21, 2, 2)
TARGET = processed(TARGET_LOGITS, SamplingParams())
DRAFT = processed(random_logits(22, 2, 2), SamplingParams())


MODES: dict[str, dict[str, Any]] = {
    "practice": {"learner": Logistic(learning_rate=0.8), "idle_factor": 2.0},
    "theory": {
        "learner": Linear(step=0.3, decay=0.6),
        "soft_labels": False,
        "idle_factor": 1.0,
        "importance_clip": inf,
    },
    "direct survival": {"learner": DirectSurvival(learning_rate=0.8)},
    "long-run objective, pads": {"objective": Objective.RENEWAL, "pad_widths": (1, 3), "pad_rate": 0.5},
    "t^-1/5, bare bones": {"schedule": Schedule.ANYTIME, "features": FeatureLevel.F0},
}


def new_amtp(mode: str = "practice") -> AMTP:
    """Cheap enough drafting that the hazards decide, and a coin that comes up often."""
    costs = CostTable.from_profile([(0, 1.0), (1, 1.6), (2, 2.2)])
    return AMTP(costs=costs, epsilon=0.25, warmup_rounds=0, **MODES[mode])


def resumed(state: Hashable) -> AMTP:
    """AMTP as it was when the state was saved."""
    content = json.loads(str(state))
    amtp = new_amtp(content["mode"])
    amtp.load_state_dict(content["state"])
    return amtp


def saved(amtp: AMTP, mode: str = "practice") -> str:
    """The state as a key of the enumeration."""
    return json.dumps({"mode": mode, "state": amtp.state_dict()})


def context_before(tokens: Tokens, top_prob: float | None = None) -> RoundContext:
    """What AMTP may see: the target's law behind the last committed token, unless a test slips in something else."""
    last_law = TARGET(tokens[:-1])
    return RoundContext(
        limit=LIMIT,
        context_length=len(tokens),
        generated=len(tokens) - len(PROMPT),
        temperature=1.0,
        target_entropy=float(last_law.entropy()),
        target_top_prob=float(last_law.dense().max()) if top_prob is None else top_prob,
        last_token_repeats=tokens[-1] in tokens[:-1],
    )


@cache
def choices(state: Hashable, context: RoundContext) -> list[tuple[Choice, float]]:
    """AMTP's answers with their probabilities over its coin, by enumeration of the coin (epsilon is 1/4)."""
    amtp = resumed(state)
    return [(amtp.propose(context, uniform=quarter / 4), 0.25) for quarter in range(4)]


def policy(info: PreDraft) -> dict[int, float]:
    """Horizons with their probabilities."""
    law = dict.fromkeys(range(LIMIT + 1), 0.0)
    context = context_before(info.context)
    for choice, weight in choices(info.memory, context):
        law[choice.horizon] += weight
    return {horizon: weight for horizon, weight in law.items() if weight > 0.0}


def learn(state: Hashable, told: Round) -> str:
    """AMTP after a round; what it took depends on tokens that were discarded, which is allowed."""
    context = context_before(told.context)
    choice = next(c for c, _ in choices(state, context) if c.horizon >= len(told.drafted))
    amtp = resumed(state)
    amtp.observe(
        RoundFeedback(
            choice=choice,
            context=context,
            accepted=told.accepted,
            accept_probabilities=told.accept_probabilities,
            overlaps=told.overlaps,
            seconds=1.0 + 0.6 * len(told.drafted) + 0.01 * sum(told.drafted),
        )
    )
    return saved(amtp, json.loads(str(state))["mode"])


def taught(mode: str = "practice") -> str:
    """A state that has learned: drafts pay where ``target_top_prob`` is high, and only there."""
    amtp, rng = new_amtp(mode), random.Random(0)
    for _ in range(200):
        sure = rng.random() < 0.5  # by chance, so that the history does not tell
        context = context_before(PROMPT, top_prob=1.0 if sure else 0.0)
        choice = amtp.propose(context, uniform=0.0)
        value = (0.999,) * LIMIT if sure else (0.001,) * LIMIT
        amtp.observe(
            RoundFeedback(
                choice=choice,
                context=context,
                accepted=LIMIT if sure else 0,
                accept_probabilities=value,
                overlaps=value,
                seconds=2.2,
            )
        )
    return saved(amtp, mode)


def law_of(horizons: Horizons, num_tokens: int) -> float:
    """Distance of the generation from the target's law."""
    law = generation_law(
        target=TARGET,
        draft=DRAFT,
        rule=TokenLevel(),
        horizons=horizons,
        prompt=PROMPT,
        num_tokens=num_tokens,
    )
    return distance(law, chain_law(plain_model(TARGET_LOGITS, SamplingParams()), PROMPT, num_tokens))


@pytest.mark.parametrize("mode", MODES)
def test_amtp_that_learns_is_exact(mode: str) -> None:
    """Catches a horizon that depends on this round's drafts through state, coin or features."""
    with without_shape_checks():
        for state in (saved(new_amtp(mode), mode), taught(mode)):
            assert law_of(Horizons(policy, memory=state, remember=learn), num_tokens=3) <= TOLERANCE


def test_amtp_that_decides_verification_only_is_exact() -> None:
    """Block drafters: everything is drafted and the horizon, chosen before, says how much is verified."""

    def cut(info: PreDraft, _: Tokens) -> int:
        return resumed(info.memory).propose(context_before(info.context), uniform=0.99).horizon

    for state in (saved(new_amtp()), taught()):
        assert law_of(Horizons(lambda _: {LIMIT: 1.0}, cut=cut, memory=state), num_tokens=3) <= TOLERANCE


def test_amtp_uses_more_than_one_horizon() -> None:
    """A policy that never varies would pass the test above without testing anything."""
    horizons = {
        horizon
        for state in (saved(new_amtp()), taught())
        for context in ((*PROMPT, 0), (*PROMPT, 1), (*PROMPT, 1, 1))
        for horizon in policy(PreDraft(context, state))
    }
    assert len(horizons) > 1


def test_amtp_given_a_feature_of_the_current_draft_is_red() -> None:
    """Wiring bug: ``target_top_prob`` is filled with what the target says about the token just drafted."""
    state = taught()

    def cut(info: PreDraft, drafted: Tokens) -> int:
        leaked = context_before(info.context, top_prob=float(drafted[0]))
        return min(resumed(state).propose(leaked, uniform=0.99).horizon, len(drafted))

    assert law_of(Horizons(lambda _: {LIMIT: 1.0}, cut=cut), num_tokens=3) > CLEARLY_BIASED
