"""Greedy answers are the target's own, whatever is drafted and however long; float64, so no exception is allowed."""

from functools import cache

import pytest
import torch

from forerun.distributions import SamplingParams
from forerun.drafters import DraftModel, PromptLookup
from forerun.engine import Generation, RoundRecord, generate
from forerun.models import TransformersTarget, tiny_target
from tests.support.drafters import GuessingDrafter, reciting, wrong_at
from tests.support.horizons import Forced
from tests.support.targets import fresh_greedy, random_table, successor_target

GREEDY = SamplingParams(temperature=0.0)
PROMPT = (5, 9, 2)
COUNT = 40
VOCAB = 64
FLOAT64 = 1e-9
"""One pass against many: sums in another order."""


@cache
def target() -> TransformersTarget:
    return tiny_target()


@cache
def sequence() -> tuple[int, ...]:
    """Prompt, answer, and a few tokens more that drafters may look at."""
    return tuple(fresh_greedy(target(), PROMPT, COUNT + 16))


ANSWER = slice(len(PROMPT), len(PROMPT) + COUNT)


def assert_in_step(generation: Generation) -> None:
    """Between rounds, cache and session hold all committed tokens but the last."""
    session = generation._session
    if session.finish is None:  # an answer cut by a stop inside a block is never read on
        length = len(session._committed) - 1
        assert session.cache.length == length
        assert session._proposer is None or session._proposer.length == length


def run_in_step(generation: Generation) -> list[RoundRecord]:
    """All records, with the bookkeeping checked after each round."""
    assert generation.prefill is not None
    assert_in_step(generation)
    records = []
    for record in generation:
        assert_in_step(generation)
        records.append(record)
    return records


def test_plain_decoding_is_horizon_zero_of_the_same_code() -> None:
    """Catches a plain path of its own, and every error that drafting rounds and plain rounds share."""
    plain = generate(target(), PROMPT, sampling=GREEDY, max_new_tokens=COUNT)
    zero = generate(
        target(), PROMPT, drafter=DraftModel(target(), target()), horizon=0, sampling=GREEDY, max_new_tokens=COUNT
    )
    assert plain.token_ids == zero.token_ids == list(sequence()[ANSWER])
    assert [record.token_ids for record in plain] == [record.token_ids for record in zero]
    assert zero.totals.rounds_without_drafts == zero.totals.rounds == COUNT - 1


def test_the_target_as_its_own_drafter_is_always_accepted() -> None:
    """C01. Catches caches and positions that are off by one: acceptance falls below 1 although ids stay right."""
    generation = generate(
        target(), PROMPT, drafter=DraftModel(target(), target()), horizon=4, sampling=GREEDY, max_new_tokens=COUNT
    )
    records = run_in_step(generation)
    # 39 tokens after the first: seven rounds of five, and a last one with room for four
    assert [(record.drafted, record.accepted, len(record.token_ids)) for record in records] == [(4, 4, 5)] * 7 + [
        (3, 3, 4)
    ]
    assert generation.token_ids == list(sequence()[ANSWER])


def test_rounds_without_drafts_leave_no_holes_in_the_drafters_cache() -> None:
    """C34. Catches a session that is not extended in rounds of horizon 0: later drafts would be rejected."""
    generation = generate(
        target(),
        PROMPT,
        drafter=DraftModel(target(), target()),
        horizon=Forced([0, 0, 3, 0, 2, 4]),
        sampling=GREEDY,
        max_new_tokens=COUNT,
    )
    records = run_in_step(generation)
    assert [record.drafted for record in records[:12]] == [0, 0, 3, 0, 2, 4] * 2
    assert [record.accepted for record in records] == [record.drafted for record in records]
    assert generation.token_ids == list(sequence()[ANSWER])


def test_every_committed_token_reaches_the_session_once_and_in_order() -> None:
    """Catches drafts that are handed over before verification, and tokens that are handed over twice."""
    drafter = wrong_at(sequence(), lambda place: place == 3, vocab_size=VOCAB)
    generation = generate(
        target(), PROMPT, drafter=drafter, horizon=Forced([4, 0, 1]), sampling=GREEDY, max_new_tokens=COUNT
    )
    run_in_step(generation)
    (session,) = drafter.sessions
    assert session.tokens == list(sequence()[: len(PROMPT) + COUNT - 1])
    assert session.extended[:4] == [len(PROMPT), 3, 1, 2]  # two of four accepted, none drafted, one of one


def test_every_token_comes_with_its_own_features() -> None:
    """Catches features of discarded drafts or of other rows: answers stay right and acceptance falls."""
    drafter = wrong_at(sequence(), lambda place: place == 3, vocab_size=VOCAB, captured_layers=(1, 0))
    generation = generate(
        target(), PROMPT, drafter=drafter, horizon=Forced([4, 0, 1]), sampling=GREEDY, max_new_tokens=COUNT
    )
    run_in_step(generation)
    (session,) = drafter.sessions
    expected = target().teach(torch.tensor(session.tokens), captured=(1, 0)).features
    torch.testing.assert_close(torch.cat(session.features), expected, rtol=0, atol=FLOAT64)


def test_a_single_draft_token_is_verified_like_any_other() -> None:
    """C13. Catches one-token drafts that are committed unseen: the prompt says 1 three times, the target says 2."""
    stubborn = successor_target({1: 2, 2: 1}, vocab_size=4)
    drafter = PromptLookup(4)
    for horizon in (1, 2, 4):
        generation = generate(stubborn, [1, 1, 1], drafter=drafter, horizon=horizon, sampling=GREEDY, max_new_tokens=6)
        assert generation.token_ids == [2, 1, 2, 1, 2, 1]
        assert generation.records[1].drafted >= 1  # after 2, 1 the look-up copies 1 at first


@pytest.mark.parametrize(("wrong", "horizon"), [(j, k) for k in range(1, 5) for j in range(1, k + 1)])
def test_the_rejected_position_keeps_its_own_correction(wrong: int, horizon: int) -> None:
    """C14. Catches a correction that is drawn from the row after the rejected token, worst for horizon 1."""
    table = random_table(3, vocab_size=7)
    known = fresh_greedy(table, PROMPT[:1], 24)
    drafter = wrong_at(known, lambda place: place == wrong, vocab_size=7)
    generation = generate(table, PROMPT[:1], drafter=drafter, horizon=horizon, sampling=GREEDY, max_new_tokens=20)
    records = run_in_step(generation)
    assert generation.token_ids == known[1:21]
    assert [record.accepted for record in records if record.drafted >= wrong] == [wrong - 1] * sum(
        record.drafted >= wrong for record in records
    )


def drafter_of(kind: str) -> GuessingDrafter:
    if kind == "right":
        return reciting(sequence(), vocab_size=VOCAB)
    if kind == "wrong":
        return wrong_at(sequence(), lambda _: True, vocab_size=VOCAB)
    return GuessingDrafter(lambda _, horizon: [0] * horizon, vocab_size=VOCAB)


@pytest.mark.parametrize("kind", ["right", "wrong", "constant"])
@pytest.mark.parametrize("horizon", [1, 4, None])
def test_adversarial_drafters_change_nothing_but_speed(kind: str, horizon: int | None) -> None:
    """C15. Catches drafts that get through unverified, and a controller that breaks when every draft fails."""
    generation = generate(
        target(), PROMPT, drafter=drafter_of(kind), horizon=horizon, sampling=GREEDY, max_new_tokens=COUNT
    )
    run_in_step(generation)
    assert generation.token_ids == list(sequence()[ANSWER])
    if kind == "wrong":
        assert generation.totals.tau == 1.0
    if kind == "right" and horizon is not None:
        assert generation.totals.accepted == generation.totals.drafted


@pytest.mark.parametrize("guess", [0, 1])
def test_ties_go_to_the_lowest_id_with_and_without_drafts(guess: int) -> None:
    """C12 through the engine. Catches a plain path and a verification path that settle ties differently."""
    tied = successor_target({}, vocab_size=5, sharpness=0.0)
    drafter = GuessingDrafter(lambda _, horizon: [guess] * horizon, vocab_size=5)
    generation = generate(tied, [3], drafter=drafter, horizon=3, sampling=GREEDY, max_new_tokens=9)
    assert generation.token_ids == [0] * 9
    assert generation.totals.accepted == (generation.totals.drafted if guess == 0 else 0)


@pytest.mark.parametrize("prompt", [(7,), (7, 7)])
@pytest.mark.parametrize("look_up", [False, True])
def test_a_short_prompt_works(prompt: tuple[int, ...], look_up: bool) -> None:
    """C29. Catches code that looks one token behind the prompt's start."""
    drafter = PromptLookup(VOCAB) if look_up else DraftModel(target(), target())
    generation = generate(target(), prompt, drafter=drafter, horizon=3, sampling=GREEDY, max_new_tokens=6)
    run_in_step(generation)
    assert generation.token_ids == fresh_greedy(target(), prompt, 6)[len(prompt) :]
