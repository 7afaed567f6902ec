"""Greedy answers for arbitrary sequences of horizons, drafters, stops and caps."""

from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.distributions import SamplingParams
from forerun.drafters import Drafter, DraftModel, PromptLookup
from forerun.engine import Finish, generate
from forerun.models import tiny_target
from tests.engine.test_greedy import run_in_step
from tests.support.drafters import GuessingDrafter, wrong_at
from tests.support.horizons import Forced
from tests.support.targets import fresh_greedy, random_table

GREEDY = SamplingParams(temperature=0.0)
VOCAB = 6
LONGEST = 24


def make_drafter(kind: str, known: list[int], wrong: frozenset[int]) -> Drafter:
    if kind == "look-up":
        return PromptLookup(VOCAB, max_ngram=2)
    if kind == "model":
        return DraftModel(random_table(99, vocab_size=VOCAB, order=1), random_table(1, vocab_size=VOCAB))
    if kind == "short":  # fewer tokens than asked for, or none
        return GuessingDrafter(
            lambda committed, horizon: known[len(committed) :][: min(horizon, len(committed) % 3)], vocab_size=VOCAB
        )
    return wrong_at(known, lambda place: place in wrong, vocab_size=VOCAB)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 5),
    prompt=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=10),
    kind=st.sampled_from(["recite", "recite", "look-up", "model", "short"]),
    wrong=st.frozensets(st.integers(1, 5), max_size=2),
    horizons=st.lists(st.integers(0, 5), min_size=1, max_size=5),
    stop_at=st.integers(0, LONGEST),
    cap=st.integers(1, LONGEST),
)
def test_any_rounds_give_the_plain_answer(
    seed: int,
    prompt: list[int],
    kind: str,
    wrong: frozenset[int],
    horizons: list[int],
    stop_at: int,
    cap: int,
) -> None:
    """Catches every wrong border of a block: roll back, correction, stop or cap at any place, rounds without drafts."""
    known = fresh_greedy(random_table(seed, vocab_size=VOCAB), prompt, LONGEST + 6)
    answer = known[len(prompt) :]
    stop_id = answer[stop_at]
    target = random_table(seed, vocab_size=VOCAB, stop_ids=(stop_id,))
    expected = answer[: min(answer.index(stop_id) + 1, cap)]
    policy = Forced(horizons)

    generation = generate(
        target,
        prompt,
        drafter=make_drafter(kind, known, wrong),
        horizon=policy,
        sampling=GREEDY,
        max_new_tokens=cap,
    )

    assert generation.token_ids == expected
    assert generation.finish == (Finish.STOP_ID if expected[-1] == stop_id else Finish.LENGTH)
    for record, context, feedback in zip(generation, policy.contexts, policy.feedback, strict=True):
        assert record.drafted <= record.choice.horizon <= context.limit == record.limit
        assert record.accepted == feedback.accepted <= record.drafted
        assert record.accepted_emitted == min(record.accepted, len(record.token_ids)) or record.finish is not None
        assert len(record.token_ids) == record.accepted + 1 or record.finish is not None
        assert context.generated + context.limit + 1 <= max(cap, context.generated + 1)


@settings(max_examples=8)
@given(
    prompt=st.lists(st.integers(0, 63), min_size=1, max_size=6),
    wrong=st.frozensets(st.integers(1, 4), max_size=2),
    horizons=st.lists(st.integers(0, 4), min_size=1, max_size=4),
)
def test_any_rounds_of_a_transformer(prompt: list[int], wrong: frozenset[int], horizons: list[int]) -> None:
    """The same with keys and values that can be rolled back wrongly."""
    target = tiny_target(seed=4)
    known = fresh_greedy(target, prompt, 18)
    generation = generate(
        target,
        prompt,
        drafter=wrong_at(known, lambda place: place in wrong, vocab_size=64),
        horizon=Forced(horizons),
        sampling=GREEDY,
        max_new_tokens=14,
    )
    run_in_step(generation)
    assert generation.token_ids == known[len(prompt) :][:14]
