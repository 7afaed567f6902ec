"""Where an answer ends: stop ids, the cap, the context; always where plain decoding ends."""

import pytest

from forerun.distributions import SamplingParams
from forerun.drafters import DraftModel
from forerun.engine import Finish, Generation, generate
from forerun.errors import ForerunError
from forerun.models import TransformersTarget, tiny_target
from tests.support.drafters import wrong_at
from tests.support.horizons import Forced
from tests.support.targets import fresh_greedy, successor_target

GREEDY = SamplingParams(temperature=0.0)
VOCAB = 40
START = 3
COUNTING = [*range(START, VOCAB), *range(VOCAB)]
"""Prompt and answer of a target that counts up: all tokens differ for a long while."""


def counting_target(*stop_ids: int) -> TransformersTarget:
    """Says t + 1 after t."""
    return successor_target({t: (t + 1) % VOCAB for t in range(VOCAB)}, vocab_size=VOCAB, stop_ids=stop_ids)


def with_itself(target: TransformersTarget, horizon: int, cap: int = 20) -> Generation:
    return generate(
        target, [START], drafter=DraftModel(target, target), horizon=horizon, sampling=GREEDY, max_new_tokens=cap
    )


def test_a_stop_id_inside_an_accepted_block_ends_the_answer_there() -> None:
    """C18. Catches tokens after EOS in the answer or in tau."""
    generation = with_itself(counting_target(START + 3), horizon=5)
    assert generation.token_ids == [START + 1, START + 2, START + 3]
    assert generation.finish is Finish.STOP_ID
    (record,) = generation.records
    assert (record.drafted, record.accepted, record.accepted_emitted) == (5, 5, 2)
    totals = generation.totals
    assert (totals.emitted, totals.accepted, totals.accepted_emitted, totals.tau) == (2, 5, 2, 2.0)


@pytest.mark.parametrize("place", range(1, 9))
@pytest.mark.parametrize("wrong", [0, 1, 2, 3])
def test_a_stop_id_ends_the_answer_at_every_place_of_a_block(place: int, wrong: int) -> None:
    """Catches a stop that is seen as prefill token, draft, last draft, correction or bonus, but not as each of them."""
    target = counting_target(START + place)
    drafter = wrong_at(COUNTING, lambda position: position == wrong, vocab_size=VOCAB)
    generation = generate(target, [START], drafter=drafter, horizon=3, sampling=GREEDY, max_new_tokens=15)
    assert generation.token_ids == COUNTING[1 : 1 + place]
    assert generation.finish is Finish.STOP_ID


@pytest.mark.parametrize("stop_ids", [(START + 3, START + 5), (START + 5, START + 3), (START + 3, 0)])
def test_any_of_several_stop_ids_ends_the_answer(stop_ids: tuple[int, int]) -> None:
    """Catches a list of which only the first or the last id counts."""
    assert with_itself(counting_target(*stop_ids), horizon=5).token_ids == COUNTING[1:4]


def test_without_a_stop_id_the_cap_ends_the_answer() -> None:
    """Catches code that expects an EOS id to exist."""
    generation = with_itself(counting_target(), horizon=5)
    assert (generation.token_ids, generation.finish) == (COUNTING[1:21], Finish.LENGTH)


def test_stop_ids_can_be_ignored() -> None:
    """Catches measurements of equal length that end early."""
    generation = generate(counting_target(START + 3), [START], sampling=GREEDY, max_new_tokens=20, ignore_stop_ids=True)
    assert generation.token_ids == COUNTING[1:21]


@pytest.mark.parametrize("cap", range(1, 12))
def test_the_cap_is_met_exactly(cap: int) -> None:
    """C19. Catches one to K tokens too many, and drafts that no longer fit."""
    generation = with_itself(counting_target(), horizon=4, cap=cap)
    assert generation.token_ids == COUNTING[1 : 1 + cap]
    assert generation.finish is Finish.LENGTH
    left = cap - 1
    for record in generation:
        assert record.limit == min(left - 1, 16)
        assert record.drafted == min(4, left - 1)
        left -= len(record.token_ids)
    assert left == 0


def test_a_drafter_with_a_shorter_context_stops_drafting() -> None:
    """C31. Catches positions beyond the drafter's range; the answer goes on without drafts, and the report says so."""
    target, short = tiny_target(max_positions=64), tiny_target(max_positions=16)
    known = fresh_greedy(target, [5, 9, 2], 30)
    generation = generate(
        target, known[:3], drafter=DraftModel(short, target), horizon=3, sampling=GREEDY, max_new_tokens=30
    )
    assert generation.token_ids == known[3:]
    # 4 tokens stand before the first round; three rounds of 4 reach the drafter's 16, then 17 tokens are left
    assert [record.drafted for record in generation] == [3, 3, 3] + [0] * 17
    assert generation.totals.accepted == 9
    assert generation.totals.rounds_without_drafts == generation.totals.rounds_beyond_drafter == 17
    assert [record.beyond_drafter for record in generation] == [False] * 3 + [True] * 17


def test_the_context_ends_the_answer() -> None:
    """Catches positions beyond the target's range."""
    target = tiny_target(max_positions=16)
    generation = generate(
        target, [5, 9, 2], drafter=DraftModel(target, target), horizon=4, sampling=GREEDY, max_new_tokens=100
    )
    assert generation.token_ids == fresh_greedy(target, [5, 9, 2], 13)[3:]
    assert generation.finish is Finish.LENGTH
    assert sum(record.drafted + 1 for record in generation) == 12  # nothing was drafted past the end either


@pytest.mark.parametrize("length", [15, 16, 17])
def test_a_prompt_as_long_as_the_context_is_refused(length: int) -> None:
    """Catches an index error far below; one token less still yields one token."""
    target = tiny_target(max_positions=16)
    if length == 15:
        generation = generate(target, [1] * length, max_new_tokens=5)
        assert (len(generation.token_ids), generation.finish) == (1, Finish.LENGTH)
    else:
        with pytest.raises(ForerunError, match=f"the prompt has {length} tokens and tiny-0 a context of 16"):
            generate(target, [1] * length)


@pytest.mark.parametrize("wrong", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("stop_at", [None, 3, 4, 5])
def test_feedback_is_cut_at_the_first_drafted_stop_accepted_or_not(wrong: int, stop_at: int | None) -> None:
    """Catches a cut that looks at the accept bits: labels of positions behind a rejected stop would be selected.

    The first block drafts places 2 to 5 of the answer; ``wrong`` is the place of the block that is drafted wrong.
    """
    target = counting_target() if stop_at is None else counting_target(START + stop_at)
    policy = Forced([4])
    drafter = wrong_at(COUNTING, lambda place: place == wrong, vocab_size=VOCAB)
    list(generate(target, [START], drafter=drafter, horizon=policy, sampling=GREEDY, max_new_tokens=20))
    first = policy.feedback[0]
    drafted = [START + place + (place - 1 == wrong) for place in range(2, 6)]
    stop_id = None if stop_at is None else START + stop_at
    assert first.censored == (drafted.index(stop_id) + 1 if stop_id in drafted else None)
    assert first.accepted == (4 if wrong == 0 else wrong - 1)
    assert len(first.accept_probabilities) == len(first.overlaps) == 4
    if wrong == 0:
        assert first.accept_probabilities == first.overlaps == (1.0,) * 4
