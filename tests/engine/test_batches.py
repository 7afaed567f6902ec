"""Many requests at once: each answer is the one that it would be alone, whoever shares its rounds."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from forerun.distributions import SamplingParams
from forerun.drafters import DraftModel
from forerun.engine import BatchGeneration, Finish, RoundTotals, generate, generate_batch
from forerun.engine.padding import unpadded
from forerun.errors import ForerunError
from forerun.models import Target, tiny_target
from tests.support.horizons import Forced
from tests.support.targets import fresh_greedy, random_table

VOCAB = 64
PROMPTS = [[7], [3, 1, 4, 1, 5], [9, 2, 6, 5, 3, 5, 8, 9, 7], [7, 7], [60]]
CAP = 18
TABLE = random_table(3, vocab_size=VOCAB, stop_ids=(5, 6))
TINY = tiny_target(stop_ids=tuple(range(0, VOCAB, 9)))
TARGETS = {"table": TABLE, "transformer": TINY}
"""Float64: rows of a batch are summed in another order than alone, which no draw here can notice."""


def drafter_of(target: Target) -> DraftModel:
    small = random_table(4, vocab_size=VOCAB) if target is TABLE else tiny_target(seed=0, num_layers=1)
    return DraftModel(small, target)


@pytest.mark.parametrize("max_batch", [1, 2, 5])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
def test_every_answer_is_the_one_that_it_would_be_alone(target: Target, temperature: float, max_batch: int) -> None:
    """C32. Catches swapped rows, shared random numbers, positions that depend on the neighbours.

    Rows draft different numbers of tokens, accept different numbers, end at different times, and make room.
    """
    sampling, pattern = SamplingParams(temperature=temperature), Forced([3, 0, 2, 4])
    batch = generate_batch(
        target,
        PROMPTS,
        drafter=drafter_of(target),
        horizon=pattern,
        sampling=sampling,
        max_new_tokens=CAP,
        max_batch=max_batch,
        seed=8,
    )
    together = batch.token_ids
    for number, prompt in enumerate(PROMPTS):
        alone = generate(
            target,
            prompt,
            drafter=drafter_of(target),
            horizon=pattern.clone(),
            sampling=sampling,
            max_new_tokens=CAP,
            seed=8,
            request=number,
        )
        answer = batch.answers[number]
        assert together[number] == alone.token_ids
        assert [record.accepted for record in answer] == [record.accepted for record in alone]
        assert answer.finish == alone.finish
    assert len({len(ids) for ids in together}) > 1 or temperature == 0.0  # answers of different lengths were seen
    assert batch.totals.emitted == sum(len(ids) - 1 for ids in together)
    assert sum((answer.totals for answer in batch.answers), RoundTotals()).rounds == batch.totals.rounds


def test_the_seconds_of_a_batch_add_up_to_the_time_that_passed() -> None:
    """Catches a shared pass that is counted once for every row."""
    batch = generate_batch(TINY, PROMPTS, max_new_tokens=CAP, max_batch=5, ignore_stop_ids=True, seed=1)
    records = [record for _, record in batch]
    passes = max(record.index for record in records) + 1
    assert len(records) == passes * len(PROMPTS)
    shared = sum(record.seconds.verify for record in records if record.index == 3)
    alone = max(record.seconds.verify for record in records if record.index == 3)
    assert shared < len(PROMPTS) * 2 * alone  # shares of one pass, not five passes


def test_sequences_of_one_prompt_differ_and_can_be_had_alone() -> None:
    """Catches copies of one answer, and a prompt's state that is shared after the copy."""
    settings: dict[str, Any] = {"drafter": drafter_of(TINY), "horizon": 3, "max_new_tokens": CAP, "seed": 2}
    batch = generate_batch(TINY, PROMPTS[:2], num_return_sequences=3, max_batch=4, **settings)
    ids = batch.token_ids
    assert len(ids) == 6
    assert len({tuple(each) for each in ids[:3]}) == len({tuple(each) for each in ids[3:]}) == 3
    for number in range(2):
        assert ids[3 * number] == generate(TINY, PROMPTS[number], request=number, **settings).token_ids
    again = generate_batch(TINY, PROMPTS[:2], num_return_sequences=3, max_batch=1, **settings)
    assert again.token_ids == ids


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_has_no_effect(side: str) -> None:
    """Catches pad ids that are read, and positions that are counted from the padding."""
    width, generator = 12, torch.Generator().manual_seed(0)
    ids = torch.randint(VOCAB, (len(PROMPTS), width), generator=generator)
    mask = torch.zeros(len(PROMPTS), width, dtype=torch.int64)
    for row, prompt in enumerate(PROMPTS):
        place = slice(width - len(prompt), width) if side == "left" else slice(0, len(prompt))
        ids[row, place], mask[row, place] = torch.tensor(prompt), 1
    assert unpadded(ids, mask) == PROMPTS
    padded = generate_batch(TINY, ids, attention_mask=mask, max_new_tokens=6, seed=3)
    assert padded.token_ids == generate_batch(TINY, PROMPTS, max_new_tokens=6, seed=3).token_ids


def test_records_come_round_after_round() -> None:
    """Catches a batch that decodes one answer after the other, and events that are lost when one answer is asked."""
    batch = generate_batch(TABLE, PROMPTS[:3], max_new_tokens=6, max_batch=3, ignore_stop_ids=True)
    rounds = iter(batch)
    assert [next(rounds)[0] for _ in range(6)] == [0, 1, 2, 0, 1, 2]
    assert len(batch.answers[1].token_ids) == 6  # runs everybody to the end
    rest = list(rounds)
    assert [index for index, _ in rest] == [0, 1, 2] * 3
    assert list(batch) == [*list(batch)[:6], *rest]


def test_a_cancelled_answer_ends_and_makes_room() -> None:
    """Catches a cancellation that stops the others, leaves the row in use, or changes what was already there."""
    whole = generate_batch(TABLE, PROMPTS, max_new_tokens=8, ignore_stop_ids=True, seed=4).token_ids
    batch = generate_batch(TABLE, PROMPTS, max_new_tokens=8, ignore_stop_ids=True, seed=4, max_batch=2)
    rounds = iter(batch)
    for _ in range(4):
        next(rounds)
    batch.answers[0].cancel()
    batch.answers[4].cancel()  # has not joined yet
    assert batch.answers[0].token_ids == whole[0][:3]
    assert batch.answers[0].finish == batch.answers[4].finish == Finish.CANCELLED
    assert batch.answers[4].token_ids == []
    assert batch.answers[4].text == ""
    assert [batch.answers[number].token_ids for number in (1, 2, 3)] == whole[1:4]
    with pytest.raises(ForerunError, match="cancelled before its prompt was read"):
        _ = batch.answers[4].prefill
    finished = batch.answers[1]
    finished.cancel()
    assert finished.finish == Finish.LENGTH


def test_a_single_answer_can_be_cancelled_while_it_streams() -> None:
    generation = generate(TABLE, [1], max_new_tokens=50, ignore_stop_ids=True)
    for record in generation:
        if record.index == 2:
            generation.cancel()
    assert len(generation.token_ids) == 4
    assert generation.finish == Finish.CANCELLED


def test_two_calls_never_influence_each_other() -> None:
    """Catches state outside the session: caches, streams, policies and processors of another call."""
    settings: dict[str, Any] = {"drafter": drafter_of(TINY), "horizon": 2, "max_new_tokens": 10, "max_batch": 2}
    apart = [generate_batch(TINY, PROMPTS, seed=seed, **settings).token_ids for seed in (1, 2)]
    both = [generate_batch(TINY, PROMPTS, seed=seed, **settings) for seed in (1, 2)]
    for _ in zip(*both, strict=False):
        pass
    assert [batch.token_ids for batch in both] == apart


@pytest.mark.parametrize("horizon", [0, 3])
def test_log_probabilities_are_those_of_plain_decoding(horizon: int) -> None:
    """C26. Catches rows of the wrong position, the drafter's own values, and entries for tokens behind a stop."""
    settings: dict[str, Any] = {
        "max_new_tokens": CAP,
        "logprobs": 3,
        "seed": 6,
        "sampling": SamplingParams(temperature=0.7, top_k=9),
    }
    batch = generate_batch(TINY, PROMPTS, drafter=drafter_of(TINY), horizon=horizon, max_batch=3, **settings)
    for prompt, answer in zip(PROMPTS, batch.answers, strict=True):
        logprobs = answer.logprobs
        assert logprobs is not None
        assert [each.token_id for each in logprobs] == answer.token_ids
        ids = torch.tensor([*prompt, *answer.token_ids])
        rows = TINY.forward(ids[:-1], TINY.new_cache()).logits[len(prompt) - 1 :].log_softmax(-1)
        for row, each in zip(rows, logprobs, strict=True):
            assert each.logprob == pytest.approx(float(row[each.token_id]), abs=1e-9)
            values, ids_of_top = row.topk(3)
            assert [token_id for token_id, _ in each.top] == ids_of_top.tolist()
            assert [value for _, value in each.top] == pytest.approx(values.tolist(), abs=1e-9)
    assert generate(TINY, [1], max_new_tokens=3).logprobs is None


def test_greedy_batches_of_a_transformer_equal_fresh_passes() -> None:
    """Catches a common mistake of batch and single engine: here the answer comes from whole passes without a cache."""
    batch = generate_batch(
        TINY, PROMPTS, drafter=drafter_of(TINY), horizon=4, sampling=SamplingParams(temperature=0.0),
        max_new_tokens=CAP, max_batch=3, ignore_stop_ids=True,
    )  # fmt: skip
    for prompt, ids in zip(PROMPTS, batch.token_ids, strict=True):
        assert ids == fresh_greedy(TINY, prompt, CAP)[len(prompt) :]


BAD: dict[str, tuple[Callable[[], BatchGeneration], str]] = {
    "no prompts": (lambda: generate_batch(TABLE, []), "prompts are a list with at least one"),
    "empty prompt": (lambda: generate_batch(TABLE, [[1], []]), "prompt 1: the prompt is empty"),
    "no sequences": (lambda: generate_batch(TABLE, [[1]], num_return_sequences=0), "num_return_sequences is 0"),
    "no rows": (lambda: generate_batch(TABLE, [[1]], max_batch=0), "max_batch is 0"),
    "mask of a list": (
        lambda: generate_batch(TABLE, [[1]], attention_mask=torch.ones(1, 1, dtype=torch.int64)),
        "attention_mask belongs to padded ids",
    ),
    "mask with a hole": (
        lambda: generate_batch(TABLE, torch.tensor([[1, 2, 3]]), attention_mask=torch.tensor([[1, 0, 1]])),
        "attention_mask of prompt 0 has a hole",
    ),
    "only padding": (
        lambda: generate_batch(TABLE, torch.tensor([[1, 2]]), attention_mask=torch.tensor([[0, 0]])),
        "prompt 0: the prompt is empty",
    ),
    "logprobs": (lambda: generate_batch(TABLE, [[1]], logprobs=VOCAB + 1), f"logprobs is {VOCAB + 1}"),
}


@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD.keys())
def test_wrong_use_is_refused_in_one_line(call: Callable[[], BatchGeneration], message: str) -> None:
    with pytest.raises(ForerunError) as error:
        call()
    assert message in str(error.value)
    assert "\n" not in str(error.value)
