"""Steps that look at earlier tokens: transformers' own processors on every row's virtual prefix, and hand counts."""

import math
import random
from typing import Any

import pytest
import torch
from jaxtyping import Float
from torch import Tensor
from transformers import (
    LogitsProcessor,
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    NoBadWordsLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from forerun.distributions import PointLaw, Processing, SamplingParams, UnusableLogits, law_from_logits
from forerun.errors import ForerunError

VOCAB = 12
STOP_IDS = (3, 7)
PROMPT = [1, 4, 4, 9]
ANSWER = [4, 2, 9, 2]
DRAFTED = [2, 5, 9, 5, 2]
ROUNDING = 1e-13
A, B = 0, 1


class Odd(LogitsProcessor):
    """A user's own: at odd lengths the last token again is unlikely, at even lengths token 0 is forbidden."""

    def __call__(self, input_ids: torch.LongTensor, scores: Tensor) -> Tensor:
        """Writes into the scores, as some processors do."""
        length = input_ids.shape[1]
        assert input_ids.shape[0] == scores.shape[0] == 1
        if length % 2:
            scores[0, input_ids[0, -1]] -= 2.0
        else:
            scores[0, 0] = -math.inf
        return scores


def random_rows(count: int, seed: int = 3) -> Float[Tensor, "rows vocab"]:
    return torch.randn(count, VOCAB, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 2.0


def started(params: SamplingParams) -> Processing:
    processing = Processing(params, PROMPT, stop_ids=STOP_IDS)
    for token_id in ANSWER:
        processing.commit(token_id)
    return processing


def transformers_list(params: SamplingParams) -> LogitsProcessorList:
    """The processors that ``generate`` would build from the same settings, in its order."""
    chain = LogitsProcessorList()
    if params.logit_bias:
        chain.append(SequenceBiasLogitsProcessor([[[token_id], value] for token_id, value in params.bias_pairs]))
    if params.repetition_penalty != 1.0:
        chain.append(RepetitionPenaltyLogitsProcessor(params.repetition_penalty))
    if params.bad_words:
        chain.append(NoBadWordsLogitsProcessor([list(word) for word in params.bad_words]))
    if params.min_new_tokens:
        chain.append(MinNewTokensLengthLogitsProcessor(len(PROMPT), params.min_new_tokens, list(STOP_IDS)))
    chain.extend(params.processors)
    if params.temperature != 1.0:
        chain.append(TemperatureLogitsWarper(params.temperature))
    if params.top_k is not None:
        chain.append(TopKLogitsWarper(params.top_k))
    if params.top_p < 1.0:
        chain.append(TopPLogitsWarper(params.top_p))
    if params.min_p > 0.0:
        chain.append(MinPLogitsWarper(params.min_p))
    if params.typical_p < 1.0:
        chain.append(TypicalLogitsWarper(params.typical_p))
    return chain


CASES: dict[str, dict[str, Any]] = {
    "bias": {"logit_bias": {2: 1.5, 5: -0.75, 11: -50.0}},
    "repetition": {"repetition_penalty": 1.7},
    "repetition-encouraged": {"repetition_penalty": 0.6},
    "bad-words": {"bad_words": [[6], [2, 5], [5, 9], [9, 2], [4, 2, 9, 2, 0], [9, 4, 2, 9, 2, 2, 5, 9, 8]]},
    "min-new-tokens": {"min_new_tokens": len(ANSWER) + 3},
    "processors": {"processors": [Odd(), NoRepeatNGramLogitsProcessor(2)]},
    "all": {
        "logit_bias": {2: 1.5, 3: 4.0, 5: -0.75},
        "repetition_penalty": 1.3,
        "bad_words": [[6], [2, 5], [9, 2]],
        "min_new_tokens": len(ANSWER) + 2,
        "processors": LogitsProcessorList([Odd(), NoRepeatNGramLogitsProcessor(3)]),
        "temperature": 0.8,
        "top_k": 9,
        "top_p": 0.95,
        "min_p": 0.01,
        "typical_p": 0.9,
    },
}


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_row_is_what_transformers_makes_of_its_own_prefix(settings: dict[str, Any], dtype: torch.dtype) -> None:
    """Catches steps that see the prefix before the block, or one token more or less, and steps in another order."""
    params = SamplingParams(**settings)
    logits = random_rows(len(DRAFTED) + 1).to(dtype)
    law = started(params).law(logits, DRAFTED)
    for row in range(len(logits)):
        prefix = torch.LongTensor([PROMPT + ANSWER + DRAFTED[:row]])
        scores = transformers_list(params)(prefix, logits[row : row + 1].clone())
        expected = torch.softmax(scores, -1, dtype=torch.float64)
        assert torch.equal(law.dense()[row] > 0.0, expected[0] > 0.0)
        torch.testing.assert_close(law.rows(row, row + 1).dense(), expected, rtol=0.0, atol=ROUNDING)


def test_presence_and_frequency_by_hand() -> None:
    """Answer 4 2 9 2, draft 2 5: token 2 is said three times, 5 once; the prompt (1, 4, 4, 9) does not count."""
    logits = torch.zeros(3, VOCAB, dtype=torch.float64)
    params = SamplingParams(presence_penalty=0.5, frequency_penalty=0.25)
    log_probs = started(params).law(logits, [2, 5]).dense().log()
    after_both = log_probs[2] - log_probs[2, 0]
    said = {2: -0.5 - 3 * 0.25, 4: -0.5 - 0.25, 9: -0.5 - 0.25, 5: -0.5 - 0.25}
    assert after_both.tolist() == pytest.approx([said.get(token, 0.0) for token in range(VOCAB)], abs=1e-12)
    before = log_probs[0] - log_probs[0, 0]
    said = {2: -0.5 - 2 * 0.25, 4: -0.5 - 0.25, 9: -0.5 - 0.25}
    assert before.tolist() == pytest.approx([said.get(token, 0.0) for token in range(VOCAB)], abs=1e-12)


def test_negative_penalties_lift() -> None:
    """Catches a penalty clamped at 0; negative ones ask for repetition."""
    law = started(SamplingParams(frequency_penalty=-1.0)).law(torch.zeros(1, VOCAB))
    assert law.dense().argmax(-1).tolist() == [2]


def test_repetition_comes_before_presence_and_bias_before_both() -> None:
    """(1 + 1) / 2 - 0.5 = 0.5; other orders give 1.25, 1.5 or 0.25."""
    params = SamplingParams(logit_bias={4: 1.0}, repetition_penalty=2.0, presence_penalty=0.5)
    logits = torch.zeros(1, VOCAB, dtype=torch.float64)
    logits[0, 4] = 1.0
    log_probs = started(params).law(logits).dense().log()
    assert float(log_probs[0, 4] - log_probs[0, 0]) == pytest.approx(0.5, abs=1e-12)


@pytest.mark.parametrize(
    ("params", "drafted", "choices"),
    [
        (SamplingParams(temperature=0.0, repetition_penalty=1.3), [A, A, A, A], [A, B, B, B, B]),
        (SamplingParams(temperature=0.0, repetition_penalty=1.3), [A, B, A, A], [A, B, A, A, A]),
        (SamplingParams(temperature=0.0, frequency_penalty=0.2), [A, A, A, A], [A, B, B, B, B]),
        (SamplingParams(temperature=0.0, frequency_penalty=0.2), [A, B, A, B], [A, B, A, B, A]),
    ],
)
def test_greedy_is_a_point_law_on_the_processed_row(
    params: SamplingParams, drafted: list[int], choices: list[int]
) -> None:
    """C24 as laws. Constant logits A = 2.0, B = 1.9.

    Repetition: A is at 1.54 once said, B at 1.46 once said. Frequency: A at 2.0 - 0.2 a, B at 1.9 - 0.2 b.
    """
    law = Processing(params, [2]).law(torch.tensor([[2.0, 1.9, 0.0]] * 5), drafted)
    assert isinstance(law, PointLaw)
    assert law.token_ids.tolist() == choices


@pytest.mark.parametrize("settings", [*CASES.values(), {"presence_penalty": 0.4, "frequency_penalty": 0.3}])
def test_rows_do_not_depend_on_how_a_prefix_came_about(settings: dict[str, Any]) -> None:
    """A prefix is committed, drafted in a chain, drafted one by one, or a path in a tree: bit for bit the same law.

    Catches drafted tokens that stay behind in the counts, and commits that are forgotten.
    """
    params = SamplingParams(**settings)
    numbers = random.Random(5)
    said = [numbers.randrange(VOCAB) for _ in range(12)]
    logits = random_rows(len(said) + 1, seed=6)
    growing = Processing(params, PROMPT, stop_ids=STOP_IDS)  # lags behind: the rest is drafted
    for length in range(len(said)):
        start = length // 2
        if length % 2 == 0 and length > 0:
            growing.commit(said[start - 1])
        expected = Processing(params, PROMPT, stop_ids=STOP_IDS)
        for token_id in said[:length]:
            expected.commit(token_id)
        row, drafted = logits[length : length + 1], said[start:length]
        committed = expected.law(row).dense()
        chain = growing.law(logits[start : length + 1], drafted)
        tree = growing.law_of_paths(logits[[length, 0, length]], [drafted, [0, 0, 0], drafted])
        assert torch.equal(growing.law_after(row, drafted).dense(), committed)
        assert torch.equal(chain.dense()[-1:], committed)
        assert torch.equal(tree.dense()[[0, 2]], committed.expand(2, -1))


def test_only_the_row_counts_when_only_the_row_is_looked_at() -> None:
    """Bit for bit the law of the stateless function, prefix or not."""
    params = SamplingParams(logit_bias={1: 2.0}, temperature=0.7, top_k=5, typical_p=0.8)
    assert params.row_only
    logits = random_rows(4)
    assert torch.equal(started(params).law(logits, [1, 2, 3]).dense(), law_from_logits(logits, params).dense())


def test_parameters_that_look_back_need_a_processing() -> None:
    """Catches penalties that are skipped without a word where only the row is known."""
    for settings in CASES.values():
        params = SamplingParams(**settings)
        if not params.row_only:
            with pytest.raises(ForerunError, match="use Processing"):
                law_from_logits(random_rows(1), params)


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES.keys())
def test_logits_are_left_alone(settings: dict[str, Any]) -> None:
    """The engine reads features of the unprocessed row afterwards; a user's processor writes into what it gets."""
    logits = random_rows(len(DRAFTED) + 1)
    kept = logits.clone()
    started(SamplingParams(**settings)).law(logits, DRAFTED)
    assert torch.equal(logits, kept)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("settings", [{"bad_words": [[6]]}, {"min_new_tokens": 9}, {"repetition_penalty": 1.5}])
def test_a_forbidden_token_does_not_hide_a_broken_row(settings: dict[str, Any], bad: float) -> None:
    """Catches bans that overwrite the NaN which shows that the model broke down."""
    params = SamplingParams(**settings)
    logits = random_rows(3)
    logits[1, {"bad_words": 6, "min_new_tokens": 3, "repetition_penalty": 4}[next(iter(settings))]] = bad
    with pytest.raises(UnusableLogits, match="logits of row 1 have largest entry") as caught:
        started(params).law(logits, [2, 5])
    assert caught.value.row == 1


def test_a_row_that_forbids_everything_is_no_law() -> None:
    """Catches a uniform law out of nothing but minus infinity."""
    everything = [[5, token_id] for token_id in range(VOCAB)]
    with pytest.raises(UnusableLogits, match=r"row 2 .* what bias, bad words and processors forbid") as caught:
        started(SamplingParams(bad_words=everything)).law(random_rows(3), [2, 5])
    assert caught.value.row == 2


@pytest.mark.parametrize(
    ("settings", "name"),
    [({"logit_bias": {VOCAB: 1.0}}, "logit_bias"), ({"bad_words": [[1, VOCAB], [2]]}, "bad_words")],
)
def test_ids_outside_the_vocabulary_are_named(settings: dict[str, Any], name: str) -> None:
    with pytest.raises(ForerunError, match=f"^{name} names token {VOCAB}; the vocabulary ends at {VOCAB - 1}$"):
        started(SamplingParams(**settings)).law(random_rows(1))


def nothing(input_ids: Tensor, scores: Tensor) -> None:
    return None


def too_few(input_ids: Tensor, scores: Tensor) -> Tensor:
    return scores[:, 1:]


@pytest.mark.parametrize("processor", [nothing, too_few])
def test_a_processor_that_returns_no_scores_is_named(processor: Any) -> None:
    """Catches a forgotten return statement that shows as a traceback of the library."""
    with pytest.raises(ForerunError, match=r"did not return scores of shape \(1, 12\)"):
        started(SamplingParams(processors=[processor])).law(random_rows(1))


def test_processors_see_the_ids_as_generate_gives_them() -> None:
    """int64 ids of shape (1, length), in a fresh tensor for each row."""
    seen: list[list[int]] = []

    def watch(input_ids: Tensor, scores: Tensor) -> Tensor:
        assert input_ids.dtype == torch.int64 and scores.shape == (1, VOCAB)
        seen.append(input_ids[0].tolist())
        input_ids.zero_()
        return scores

    processing = started(SamplingParams(processors=[watch]))
    processing.law(random_rows(2), [5])
    processing.law_after(random_rows(1), [5, 6])
    base = PROMPT + ANSWER
    assert seen == [base, [*base, 5], [*base, 5, 6]]


def test_running_counts_of_a_long_answer() -> None:
    """Five hundred commits against a recount from nothing, for a law over few and over many tokens said."""
    numbers = random.Random(7)
    params = SamplingParams(repetition_penalty=1.4, presence_penalty=0.3, frequency_penalty=0.05)
    vocab_size = 300
    prompt = [numbers.randrange(vocab_size) for _ in range(40)]
    processing, answer = Processing(params, prompt), list[int]()
    for step in range(500):
        if step % 50 == 49:
            drafted = [numbers.randrange(vocab_size) for _ in range(3)]
            logits = torch.randn(4, vocab_size, dtype=torch.float64, generator=torch.Generator().manual_seed(step))
            found = processing.law(logits, drafted).dense()
            for row in range(4):
                said = answer + drafted[:row]
                expected = logits[row].tolist()
                for token_id in {*prompt, *said}:
                    expected[token_id] *= 1.4 if expected[token_id] < 0 else 1 / 1.4
                for token_id in set(said):
                    expected[token_id] -= 0.3 + 0.05 * said.count(token_id)
                torch.testing.assert_close(
                    found[row], torch.softmax(torch.tensor(expected, dtype=torch.float64), -1), rtol=0.0, atol=ROUNDING
                )
        answer.append(numbers.randrange(vocab_size))
        processing.commit(answer[-1])
