"""Steps that look at what was said, through the engine: the answer is plain decoding's, whatever is drafted."""

from collections import Counter
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import GenerationConfig, LogitsProcessorList

from forerun.distributions import SamplingParams
from forerun.drafters import Drafter, DraftModel, PromptLookup
from forerun.engine import generate
from forerun.errors import ForerunError
from forerun.models import TableTarget, TransformersTarget, tiny_target
from tests.exactness.enumerate import chain_law
from tests.exactness.requests import Moody, moody, plain_request
from tests.exactness.statistics import chi_square_p_value
from tests.exactness.tables import LogitTable
from tests.support.drafters import GuessingDrafter, wrong_at
from tests.support.horizons import Forced
from tests.support.targets import random_table

A, B, VOCAB = 0, 1, 5


@pytest.mark.parametrize(
    ("params", "answer"),
    [
        (SamplingParams(temperature=0.0, repetition_penalty=1.3), [A, B, A, A]),
        (SamplingParams(temperature=0.0, frequency_penalty=0.2), [A, B, A, B]),
    ],
)
@pytest.mark.parametrize("horizon", [0, 1, 3])
def test_penalties_inside_the_block(params: SamplingParams, answer: list[int], horizon: int) -> None:
    """C24. Catches penalties that see the prefix as it was before the block: the answer would be A A A A."""
    target = TableTarget(lambda _: torch.tensor([2.0, 1.9, 0.0], dtype=torch.float64), vocab_size=3)
    drafter = GuessingDrafter(lambda _, count: [A] * count, vocab_size=3)
    generation = generate(target, [2], drafter=drafter, horizon=horizon, sampling=params, max_new_tokens=4)
    assert generation.token_ids == answer


ANY_STEP: dict[str, dict[str, Any]] = {
    "repetition": {"repetition_penalty": 1.5},
    "presence-frequency": {"presence_penalty": 0.6, "frequency_penalty": 0.3},
    "bad-words": {"bad_words": [[1, 2], [3, 3], [0, 4, 1], [2]]},
    "min-new-tokens": {"min_new_tokens": 7},
    "processor": {"processors": [Moody()]},
    "all": {
        "logit_bias": {1: 0.5},
        "repetition_penalty": 1.2,
        "frequency_penalty": 0.3,
        "bad_words": [[1, 2], [3, 3]],
        "min_new_tokens": 4,
        "processors": [Moody()],
    },
}
STOP_ID = 4


def logit_table(target: TableTarget) -> LogitTable:
    """The rows of a target of order 1 as plain numbers."""
    return {
        (token,): target.forward(torch.tensor([token]), target.new_cache()).logits[0].tolist()
        for token in range(target.vocab_size)
    }


def plain_answer(seed: int, prompt: list[int], params: SamplingParams, count: int) -> list[int]:
    """Greedy by definition: recounts everything for every token, in plain Python."""
    rows = logit_table(random_table(seed, vocab_size=VOCAB, order=1))
    user = moody if params.processors else (lambda _, row: row)
    law = plain_request(rows, params, tuple(prompt), (STOP_ID,), user)
    answer: list[int] = []
    while len(answer) < count and STOP_ID not in answer:
        answer.append(law((*prompt, *answer)).index(1.0))
    return answer


@settings(max_examples=40)
@given(
    step=st.sampled_from(sorted(ANY_STEP)),
    seed=st.integers(0, 3),
    prompt=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=6),
    kind=st.sampled_from(["recite", "look-up", "model"]),
    horizons=st.lists(st.integers(0, 5), min_size=1, max_size=4),
)
def test_any_rounds_give_the_plain_answer(
    step: str, seed: int, prompt: list[int], kind: str, horizons: list[int]
) -> None:
    """Catches rejected drafts that stay in the counts, and committed tokens that never reach them."""
    params = SamplingParams(temperature=0.0, **ANY_STEP[step])
    expected = plain_answer(seed, prompt, params, 18)
    target = random_table(seed, vocab_size=VOCAB, order=1, stop_ids=(STOP_ID,))
    drafters: dict[str, Drafter] = {
        "recite": wrong_at([*prompt, *expected, 0, 0, 0, 0, 0, 0], lambda place: place == 3, vocab_size=VOCAB),
        "look-up": PromptLookup(VOCAB),
        "model": DraftModel(random_table(seed + 9, vocab_size=VOCAB, order=1), target),
    }
    generation = generate(
        target, prompt, drafter=drafters[kind], horizon=Forced(horizons), sampling=params, max_new_tokens=18
    )
    assert generation.token_ids == expected


SEED, REQUESTS, ALPHA = 40, 600, 1e-4


@pytest.mark.usefixtures("unchecked_shapes")
def test_sampled_answers_have_the_law_of_plain_decoding() -> None:
    """Declared: seed 40, 600 requests of 3 tokens, 27 possible answers, alpha 1e-4.

    Catches what a greedy answer does not show: counts of the drafter's row used for the target, and the like.
    """
    params, prompt = SamplingParams(repetition_penalty=1.5, frequency_penalty=0.5, bad_words=[[1, 1]]), (1, 0)
    target = random_table(50, vocab_size=3, order=1)
    drafter = DraftModel(random_table(51, vocab_size=3, order=1), target)
    counts = Counter(
        tuple(
            generate(
                target, prompt, drafter=drafter, horizon=2, sampling=params, max_new_tokens=3, seed=SEED, request=number
            ).token_ids
        )
        for number in range(REQUESTS)
    )
    law = chain_law(plain_request(logit_table(target), params, prompt), prompt, 3)
    answers = list(product(range(3), repeat=3))
    p_value = chi_square_p_value([counts[one] for one in answers], [law.get(one, 0.0) for one in answers])
    assert p_value > ALPHA, p_value


@pytest.fixture(scope="module")
def tiny() -> TransformersTarget:
    return tiny_target(vocab_size=VOCAB + 20)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"repetition_penalty": 1.4}, {"repetition_penalty": 1.4}),
        ({"logit_bias": {3: 0.5, 9: -1.0}}, {"sequence_bias": [[[3], 0.5], [[9], -1.0]]}),
        ({"bad_words": [[3], [9, 4], [4, 4]]}, {"bad_words_ids": [[3], [9, 4], [4, 4]]}),
        (
            {"repetition_penalty": 1.4, "logit_bias": {3: 0.5}, "bad_words": [[3], [4, 4]], "processors": [Moody()]},
            {"repetition_penalty": 1.4, "sequence_bias": [[[3], 0.5]], "bad_words_ids": [[3], [4, 4]]},
        ),
    ],
)
def test_greedy_ids_are_those_of_transformers_generate(
    tiny: TransformersTarget, ours: dict[str, Any], theirs: dict[str, Any]
) -> None:
    """The same settings in transformers' own ``generate``: catches another order of steps."""
    prompt = [1, 7, 3, 7]
    model: Any = tiny.model
    plain = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt)),
        generation_config=GenerationConfig(max_new_tokens=24, do_sample=False, pad_token_id=0, **theirs),
        logits_processor=LogitsProcessorList(ours.get("processors", [])),
    )[0, len(prompt) :].tolist()
    params = SamplingParams(temperature=0.0, **ours)
    for horizon in (0, 3):
        generation = generate(
            tiny, prompt, drafter=PromptLookup(tiny.vocab_size, max_ngram=1), horizon=horizon, sampling=params,
            max_new_tokens=24, ignore_stop_ids=True,
        )  # fmt: skip
        assert generation.token_ids == plain


def test_ids_outside_the_vocabulary_are_refused_before_anything_runs() -> None:
    target = random_table(1, vocab_size=VOCAB)
    refused: list[tuple[dict[str, Any], str]] = [
        ({"logit_bias": {5: 1.0}}, "logit_bias"),
        ({"bad_words": [[2, 7]]}, "bad_words"),
    ]
    for step, name in refused:
        with pytest.raises(ForerunError, match=f"^{name} names token [57]; the vocabulary ends at 4$"):
            generate(target, [1], sampling=SamplingParams(**step))
