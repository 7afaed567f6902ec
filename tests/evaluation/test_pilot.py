"""What a pilot sees: a cycle that looks at nothing, and hazards and costs of a pair whose truth is known."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from forerun.distributions import SamplingParams
from forerun.drafters import DraftModel
from forerun.errors import ForerunError
from forerun.evaluation import CyclingHorizon, HorizonCost, Pilot, run_pilot
from forerun.horizons import Choice, HorizonPolicy, RoundContext, RoundFeedback
from forerun.models import TransformersTarget
from tests.support.drafters import GuessingDrafter
from tests.support.speed import without_shape_checks
from tests.support.targets import markov_target, successor_target
from tests.support.tokenizers import text_tokenizer
from tests.support.writers import chat_target

VOCAB = 6
HORIZON = 3


def context(limit: int = HORIZON, **changes: Any) -> RoundContext:
    base = RoundContext(
        limit=limit, context_length=9, generated=3, temperature=1.0, target_entropy=1.0, target_top_prob=0.5,
        target_margin=0.2, last_token_repeats=False,
    )  # fmt: skip
    return replace(base, **changes)


def feedback(choice: Choice, accepted: int) -> RoundFeedback:
    survived = tuple(1.0 if place < accepted else 0.0 for place in range(choice.horizon))
    return RoundFeedback(
        choice=choice, context=context(), accepted=accepted, accept_probabilities=survived, overlaps=survived,
        seconds=1.0, censored=None,
    )  # fmt: skip


def horizons_of(policy: HorizonPolicy, accepted: Sequence[int], contexts: Sequence[RoundContext]) -> list[int]:
    chosen = []
    for hits, known in zip(accepted, contexts, strict=True):
        choice = policy.propose(known, uniform=0.5)
        chosen.append(choice.horizon)
        policy.observe(feedback(choice, min(hits, choice.horizon)))
    return chosen


def test_the_cycle_depends_on_the_round_number_alone() -> None:
    """Catches a pilot whose horizon follows the drafts: hazards would be those of easy rounds only."""
    rounds = 9
    expected = [3, 2, 1, 0, 3, 2, 1, 0, 3]
    easy = horizons_of(CyclingHorizon(3), [3] * rounds, [context()] * rounds)
    hard = horizons_of(CyclingHorizon(3), [0] * rounds, [context(target_entropy=5.0, generated=99)] * rounds)
    assert easy == hard == expected
    assert horizons_of(CyclingHorizon(3), [0] * 4, [context(limit=2)] * 4) == [2, 2, 1, 0]


def test_the_cycle_says_what_it_drafts() -> None:
    """Catches propensities that do not belong to the choice, and a clone that goes on in the middle."""
    policy = CyclingHorizon(3)
    policy.observe(feedback(policy.propose(context(), uniform=0.0), 1))
    choice = policy.propose(context(), uniform=0.0)
    assert (choice.horizon, choice.planned, choice.explored, choice.propensities) == (2, 2, False, (1.0, 1.0, 0.0))
    assert policy.clone().propose(context(), uniform=0.0).horizon == 3


@cache
def tables() -> tuple[torch.Tensor, torch.Tensor]:
    """Laws of target and draft model after each token."""
    generator = torch.Generator().manual_seed(4)
    target = 1.5 * torch.randn(VOCAB, VOCAB, generator=generator, dtype=torch.float64)
    return target, target + 0.9 * torch.randn(VOCAB, VOCAB, generator=generator, dtype=torch.float64)


def padded(table: torch.Tensor) -> torch.Tensor:
    """The same language inside the tokenizer's vocabulary; whatever came before, it goes on with one of its tokens."""
    whole = torch.full((300, 300), -torch.inf, dtype=torch.float64)
    whole[:, :VOCAB] = 0.0
    whole[:VOCAB, :VOCAB] = table
    return whole


def chain(table: torch.Tensor) -> TransformersTarget:
    finite = padded(table).clamp(min=-60.0)  # minus infinity would be NaN on the way through the layers
    return markov_target(finite, tokenizer=text_tokenizer(), max_positions=4000)


def true_survivals() -> list[float]:
    """P(draft j is accepted) in a round that drafts it, j = 1..HORIZON.

    A draft is proposed and accepted with probability min(target, draft), a correction comes with (target - draft)_+: so
    the powers of ``kept`` say how far drafts get, and ``turned[k]`` is the law of the token that ends a round of
    horizon k, given the one that started it. Rounds start where the cycle of horizons HORIZON, .., 0 settles.
    """
    target, draft = (table.softmax(-1) for table in tables())
    kept, corrected = torch.minimum(target, draft), (target - draft).clamp(min=0)
    powers = [torch.linalg.matrix_power(kept, count) for count in range(HORIZON + 1)]
    turned = [
        sum((powers[place] @ corrected for place in range(horizon)), powers[horizon] @ target)
        for horizon in range(HORIZON + 1)
    ]
    cycle = list(range(HORIZON, -1, -1))
    start = torch.linalg.matrix_power(torch.linalg.multi_dot([turned[horizon] for horizon in cycle]), 100)[0]
    drafted, accepted = torch.zeros(HORIZON), torch.zeros(HORIZON)
    for horizon in cycle:
        for place in range(horizon):
            drafted[place] += 1
            accepted[place] += float(start @ powers[place + 1].sum(-1))
        start = start @ turned[horizon]
    return (accepted / drafted).tolist()


def test_hazards_are_those_of_the_pair() -> None:
    """Catches hazards of another position, rejections counted before they were reached, and a drafter not asked for.

    4 prompts of 250 tokens, seed 0. Bounds: four binomial standard errors of each survival (alpha 2e-4 for all three).
    """
    target, draft = (chain(table) for table in tables())
    with without_shape_checks():
        pilot = run_pilot(
            target, DraftModel(draft, target, max_horizon=HORIZON), [f"prompt {index}" for index in range(4)],
            sampling=SamplingParams(), max_new_tokens=250, seed=0,
        )  # fmt: skip
    survived = 1.0
    for place, (hazard, truth) in enumerate(zip(pilot.hazards, true_survivals(), strict=True)):
        survived *= 1.0 - hazard
        tries = pilot.rounds * (HORIZON - place) / (HORIZON + 1)
        error = (truth * (1 - truth) / tries) ** 0.5
        assert abs(survived - truth) < 4 * error, (place, survived, truth, error)
    assert [cost.horizon for cost in pilot.costs] == [0, 1, 2, 3]
    assert abs(max(cost.num_rounds for cost in pilot.costs) - min(cost.num_rounds for cost in pilot.costs)) <= 12
    assert 100 < pilot.context_length < 250
    assert all(cost.round_seconds > 0 for cost in pilot.costs)


def test_a_pilot_that_never_rejects_and_one_that_always_does() -> None:
    """Catches certainty taken literally: a short pilot cannot say never."""
    cyclic = successor_target(
        {token: (token + 1) % 7 for token in range(7)}, vocab_size=300, tokenizer=text_tokenizer()
    )
    wrong = successor_target({token: (token + 2) % 7 for token in range(7)}, vocab_size=300, tokenizer=text_tokenizer())
    sampling = SamplingParams(temperature=0.0)
    for draft, hazards in ((cyclic, (0.01, 0.01)), (wrong, (0.99, 0.99))):
        drafter = DraftModel(draft, cyclic, max_horizon=2)
        pilot = run_pilot(cyclic, drafter, ["a"], sampling=sampling, max_new_tokens=20, seed=0)
        assert pilot.hazards == pytest.approx(hazards)


def test_answers_too_short_for_every_horizon_are_an_error() -> None:
    """Catches a cost table with holes."""
    target = chat_target()
    drafter = DraftModel(target, target, max_horizon=3)
    with pytest.raises(ForerunError, match=r"the pilot saw no round of horizon 0; give longer answers"):
        run_pilot(target, drafter, ["a"], sampling=SamplingParams(temperature=0.0), max_new_tokens=8, seed=0)


def pilot_of(hazards: Sequence[float], seconds: Sequence[float]) -> Pilot:
    costs = tuple(
        HorizonCost(horizon=horizon, draft_seconds=0.1, verify_seconds=0.2, round_seconds=each, num_rounds=5)
        for horizon, each in enumerate(seconds)
    )
    return Pilot(costs=costs, hazards=tuple(hazards), context_length=10, rounds=20)


@pytest.mark.parametrize(
    ("hazards", "seconds", "best"),
    [
        # expected tokens 1, 1.8, 2.44, 2.952 at hazard 0.2
        ((0.2, 0.2, 0.2), (1.0, 1.1, 1.2, 1.3), 3),
        ((0.2, 0.2, 0.2), (1.0, 1.1, 1.2, 1.7), 2),
        ((0.2, 0.2, 0.2), (1.0, 1.1, 2.0, 3.0), 1),
        ((0.9, 0.9, 0.9), (1.0, 5.0, 9.0, 13.0), 1),  # plain decoding would be best, but it is an arm of its own
        ((0.9, 0.1, 0.1), (1.0, 1.01, 1.02, 1.03), 3),
    ],
)
def test_the_best_fixed_horizon_drafts(hazards: Sequence[float], seconds: Sequence[float], best: int) -> None:
    """Catches horizon 0 as best fixed horizon, and costs that are read one place off."""
    assert pilot_of(hazards, seconds).best_fixed_horizon == best


def test_costs_reach_the_adaptive_policy() -> None:
    table = pilot_of((0.2, 0.2), (1.0, 1.5, 2.5)).cost_table
    assert table.seconds(2) == pytest.approx((1.0, 1.5, 2.5))


def test_drafters_whose_drafts_depend_on_the_horizon_are_refused() -> None:
    """Catches hazards that belong to no horizon at all."""
    drafter = GuessingDrafter(lambda _, horizon: [horizon] * horizon, vocab_size=300)
    drafter.prefix_consistent = False
    with pytest.raises(ForerunError, match="guessing drafts differently at each horizon"):
        run_pilot(chat_target(), drafter, ["a"], sampling=SamplingParams(), max_new_tokens=8, seed=0)
