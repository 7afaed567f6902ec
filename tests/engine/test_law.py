"""Sampled answers have the target's law: chi-square through the whole engine.

A target of order 1 makes the answer a Markov chain: what follows the token t is drawn from row t each time. Seeds are
declared, so a result can be repeated; alpha is shared among the rows (Bonferroni).
"""

from collections import Counter
from itertools import pairwise
from typing import final

import pytest
import torch
from jaxtyping import Float64
from torch import Tensor

from forerun.distributions import Law, SamplingParams
from forerun.drafters import Drafter, DraftModel, PromptLookup
from forerun.engine import Generation, generate
from forerun.horizons import AMTP, HorizonPolicy
from forerun.models import TableTarget
from forerun.verification import (
    Agreement,
    BlockVerification,
    Outcome,
    Proposal,
    Rule,
    TokenLevel,
    Truncation,
    TypicalAcceptance,
    residual_law,
)
from tests.exactness.statistics import chi_square_p_value
from tests.exactness.tables import plain_row
from tests.support.drafters import GuessingDrafter
from tests.support.horizons import Clocked, Forced
from tests.support.targets import random_table

SEED = 20
TOKENS = 800
ALPHA = 1e-4
VOCAB = 4
TARGET = random_table(11, vocab_size=VOCAB, order=1)


def p_values(generation: Generation, target: TableTarget, params: SamplingParams) -> dict[int, float]:
    """For each token: how likely at least this much disagreement is among the tokens that followed it."""
    followers = {token: Counter[int]() for token in range(VOCAB)}
    ids = [*generation.request.prompt_ids, *generation.token_ids]
    for token, following in pairwise(ids):
        followers[token][following] += 1
    values = {}
    for token, counts in followers.items():
        logits = target.forward(torch.tensor([token]), target.new_cache()).logits[0].tolist()
        probs = plain_row(logits, params)
        values[token] = chi_square_p_value([counts[following] for following in range(VOCAB)], probs)
    return values


def model_drafter() -> Drafter:
    return DraftModel(random_table(12, vocab_size=VOCAB, order=2), TARGET, max_horizon=4)


def constant_drafter() -> Drafter:
    return GuessingDrafter(lambda _, horizon: [2] * horizon, vocab_size=VOCAB)


CASES: dict[str, tuple[Drafter, int | HorizonPolicy, SamplingParams, Rule]] = {
    "model, fixed": (model_drafter(), 3, SamplingParams(), TokenLevel()),
    "model, AMTP, cool": (model_drafter(), Clocked(AMTP(epsilon=0.1)), SamplingParams(temperature=0.7), TokenLevel()),
    "model, AMTP, top-k": (model_drafter(), Clocked(AMTP(warmup_rounds=0)), SamplingParams(top_k=3), TokenLevel()),
    "model, pattern, top-p": (model_drafter(), Forced([0, 2, 4, 1]), SamplingParams(top_p=0.8), TokenLevel()),
    "look-up, fixed": (PromptLookup(VOCAB), 3, SamplingParams(), TokenLevel()),
    "constant, fixed, hot": (constant_drafter(), 2, SamplingParams(temperature=1.6), TokenLevel()),
    "block, model, fixed": (model_drafter(), 4, SamplingParams(), BlockVerification()),
    "block, model, AMTP, top-p": (
        model_drafter(),
        Clocked(AMTP(epsilon=0.1)),
        SamplingParams(top_p=0.8),
        BlockVerification(),
    ),
    "agreement, look-up, hot": (PromptLookup(VOCAB), 3, SamplingParams(temperature=1.6), Agreement()),
}


@pytest.mark.parametrize(("drafter", "horizon", "params", "rule"), CASES.values(), ids=CASES.keys())
@pytest.mark.usefixtures("unchecked_shapes")
def test_answers_have_the_targets_law(
    drafter: Drafter, horizon: int | HorizonPolicy, params: SamplingParams, rule: Rule
) -> None:
    """Catches what the rule alone cannot show: wrong rows, shared numbers, drafts cut after sight."""
    generation = generate(
        TARGET, [1], drafter=drafter, horizon=horizon, sampling=params, max_new_tokens=TOKENS, seed=SEED, rule=rule
    )
    values = p_values(generation, TARGET, params)
    assert min(values.values()) > ALPHA / VOCAB, values
    assert generation.exact
    totals = generation.totals
    assert 0 < totals.accepted < totals.drafted  # both branches were taken


@pytest.mark.usefixtures("unchecked_shapes")
def test_the_engine_uses_the_rule_it_is_given() -> None:
    """The same drafter, 400 tokens, one seed: a rule that the engine ignored would give equal counts."""
    accepted = {}
    for rule in (TokenLevel(), BlockVerification(), Agreement()):
        answer = generate(TARGET, [1], drafter=model_drafter(), horizon=4, max_new_tokens=400, seed=SEED, rule=rule)
        accepted[rule.name] = answer.totals.accepted / answer.totals.rounds
    assert accepted["agreement"] < accepted["token-level"] < accepted["block"], accepted


@pytest.mark.usefixtures("unchecked_shapes")
def test_a_lossy_rule_is_seen_and_flagged() -> None:
    """Typical acceptance through the engine: another law, and `exact` is False."""
    generation = generate(
        TARGET, [1], drafter=model_drafter(), horizon=3, max_new_tokens=TOKENS, seed=SEED, rule=TypicalAcceptance()
    )
    assert not generation.exact
    assert min(p_values(generation, TARGET, SamplingParams()).values()) < 1e-9


@final
class KeepCorrected(Rule):
    """Accepts by a fair coin, whatever the laws say; the correction is right."""

    name = "coin"
    exact = False
    needs_draft_law = True
    truncation = Truncation.BEFORE_DRAWING

    def verify(self, target: Law, proposal: Proposal, *, uniforms: Float64[Tensor, " horizon"]) -> Outcome:
        """Everything is as it should be but for the number of accepted tokens."""
        outcome = TokenLevel().verify(target, proposal, uniforms=uniforms)
        accepted = int((uniforms < 0.5).long().cumprod(0).sum())
        row = target.rows(accepted, accepted + 1)
        emission = row if accepted == proposal.horizon else residual_law(row, proposal.law.rows(accepted, accepted + 1))
        return Outcome(
            accepted=accepted,
            emission=emission,
            accept_probabilities=outcome.accept_probabilities,
            overlaps=outcome.overlaps,
        )


@pytest.mark.usefixtures("unchecked_shapes")
def test_a_biased_rule_is_seen() -> None:
    """A chi-square that cannot fail would pass everything; and a rule that is not exact must say so."""
    generation = generate(
        TARGET, [1], drafter=model_drafter(), horizon=3, max_new_tokens=TOKENS, seed=SEED, rule=KeepCorrected()
    )
    assert min(p_values(generation, TARGET, SamplingParams()).values()) < 1e-9
    assert not generation.exact
    assert generate(TARGET, [1]).exact
