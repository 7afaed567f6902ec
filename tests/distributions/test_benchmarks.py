"""Times at the vocabulary of the embedded model; `make bench` shows them, `make test` only runs them once."""

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from forerun.distributions import DenseLaw, Processing, Purpose, SamplingParams, Streams, law_from_logits

VOCAB_SIZE = 49152


def peaked_logits(num_rows: int) -> torch.Tensor:
    """Rows with about three nats, like a language model's."""
    logits = torch.randn(num_rows, VOCAB_SIZE, generator=torch.Generator().manual_seed(0)) * 2.5
    logits[:, :40] += torch.linspace(14.0, 6.0, 40)
    return logits


@pytest.mark.benchmark(group="law from logits, vocabulary 49152")
@pytest.mark.parametrize("num_rows", [1, 9])
@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(),
        SamplingParams(temperature=0.0),
        SamplingParams(top_p=0.95),
        SamplingParams(typical_p=0.9),
        SamplingParams(temperature=0.7, top_k=50, top_p=0.95, min_p=0.05),
    ],
    ids=["plain", "greedy", "top-p", "typical-p", "all"],
)
def test_law_from_logits(benchmark: BenchmarkFixture, params: SamplingParams, num_rows: int) -> None:
    logits = peaked_logits(num_rows)
    assert len(benchmark(law_from_logits, logits, params)) == num_rows


@pytest.mark.benchmark(group="laws of a block of 5 after 2500 tokens, vocabulary 49152")
@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(),
        SamplingParams(repetition_penalty=1.2),
        SamplingParams(presence_penalty=0.5, frequency_penalty=0.1),
        SamplingParams(bad_words=[[token, token + 1] for token in range(1000)]),
        SamplingParams(min_new_tokens=9999),
        SamplingParams(processors=[lambda _, scores: scores]),
    ],
    ids=["plain", "repetition", "presence-frequency", "bad-words", "min-new-tokens", "processor"],
)
def test_processing_of_a_block(benchmark: BenchmarkFixture, params: SamplingParams) -> None:
    processing = Processing(params, list(range(0, 40000, 20)), stop_ids=(2,))
    for token in range(500):
        processing.commit(token)
    assert len(benchmark(processing.law, peaked_logits(5), [1, 2, 3, 4])) == 5


@pytest.mark.benchmark(group="one draw, vocabulary 49152")
def test_sample(benchmark: BenchmarkFixture) -> None:
    law = DenseLaw.from_log_weights(peaked_logits(1))
    number = Streams(0).uniforms(Purpose.DRAFT, 0, 1)
    assert benchmark(law.sample, uniforms=number).shape == (1,)
