"""Times at the vocabulary of the embedded model; `make bench` shows them, `make test` only runs them once."""

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from forerun.distributions import DenseLaw, Purpose, SamplingParams, Streams, law_from_logits

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
        SamplingParams(temperature=0.7, top_k=50, top_p=0.95, min_p=0.05),
    ],
    ids=["plain", "greedy", "top-p", "all"],
)
def test_law_from_logits(benchmark: BenchmarkFixture, params: SamplingParams, num_rows: int) -> None:
    logits = peaked_logits(num_rows)
    assert len(benchmark(law_from_logits, logits, params)) == num_rows


@pytest.mark.benchmark(group="one draw, vocabulary 49152")
def test_sample(benchmark: BenchmarkFixture) -> None:
    law = DenseLaw.from_log_weights(peaked_logits(1))
    number = Streams(0).uniforms(Purpose.DRAFT, 0, 1)
    assert benchmark(law.sample, uniforms=number).shape == (1,)
