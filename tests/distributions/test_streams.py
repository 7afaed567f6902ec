"""Random numbers are a function of seed, request, purpose and position, and of nothing else."""

import itertools

import pytest
import torch

from forerun.distributions import Purpose, Streams
from forerun.errors import ForerunError
from tests.exactness.statistics import chi_square_p_value

ALPHA = 1e-4


def test_same_key_same_numbers_other_key_other_numbers() -> None:
    """C27: same seed same, other seed different, and no dependence on what was asked before."""
    first, again, other = Streams(1), Streams(1), Streams(2)
    other.uniforms(Purpose.EMIT, 3, 5)
    again.uniforms(Purpose.DRAFT, 9, 2)
    assert torch.equal(first.uniforms(Purpose.ACCEPT, 4, 6), again.uniforms(Purpose.ACCEPT, 4, 6))
    assert not torch.equal(first.uniforms(Purpose.ACCEPT, 4, 6), other.uniforms(Purpose.ACCEPT, 4, 6))
    assert not torch.equal(first.uniforms(Purpose.ACCEPT, 4, 6), Streams(1, 1).uniforms(Purpose.ACCEPT, 4, 6))
    assert not torch.equal(first.uniforms(Purpose.ACCEPT, 4, 6), Streams(1, sample=1).uniforms(Purpose.ACCEPT, 4, 6))


def test_request_draws_the_same_alone_and_in_a_batch() -> None:
    """C27: numbers belong to the request, not to a batch slot or to the order of calls."""
    alone = Streams(7, request=2).uniforms(Purpose.DRAFT, 0, 4)
    batch = [Streams(7, request=request) for request in range(3)]
    together = [streams.uniforms(Purpose.DRAFT, 0, 4) for streams in batch]
    assert torch.equal(alone, together[2])


def test_no_number_serves_two_decisions() -> None:
    """Overlapping counters would repeat whole runs of numbers."""
    seen = [
        number
        for seed, request, sample, purpose, position in itertools.product((0, 1), (0, 1), (0, 1), Purpose, range(8))
        for number in Streams(seed, request, sample).uniforms(purpose, position, 9).tolist()
    ]
    assert len(set(seen)) == len(seen)


def test_longer_answer_begins_with_the_shorter() -> None:
    """A round that drafts one token more must not change the tokens before it."""
    streams = Streams(3)
    assert torch.equal(streams.uniforms(Purpose.DRAFT, 5, 7)[:4], streams.uniforms(Purpose.DRAFT, 5, 4))
    assert streams.uniforms(Purpose.DRAFT, 5, 0).shape == (0,)


def test_one_number_is_the_first_of_many() -> None:
    """Catches a coin of another stream than the one that is logged."""
    streams = Streams(2**64 - 1, 12, 3)
    for purpose, position in itertools.product(Purpose, (0, 2**40)):
        assert streams.uniform(purpose, position) == float(streams.uniforms(purpose, position, 1))


def test_numbers_of_a_seed_never_change() -> None:
    """Golden values: what a seed means must survive releases of numpy and of this package."""
    assert Streams(0).uniforms(Purpose.DRAFT, 0, 2).tolist() == [0.011546754286331562, 0.24154919656271812]
    assert Streams(0, sample=0).uniforms(Purpose.DRAFT, 0, 1).tolist() == [0.011546754286331562]
    assert Streams(2**64 - 1, 12).uniforms(Purpose.EXPLORE, 2**40, 1).tolist() == [0.20370574842906986]


def test_numbers_are_uniform() -> None:
    """Declared: seed 17, 200 000 numbers over positions and offsets, 64 bins, alpha 1e-4."""
    streams = Streams(17)
    numbers = torch.cat([streams.uniforms(Purpose.ACCEPT, position, 8) for position in range(25_000)])
    assert float(numbers.min()) >= 0.0
    assert float(numbers.max()) < 1.0
    counts = torch.bincount((numbers * 64).long(), minlength=64).tolist()
    p_value = chi_square_p_value(counts, [1 / 64] * 64)
    assert p_value > ALPHA, p_value


@pytest.mark.parametrize(
    ("seed", "request_id", "sample", "name"),
    [(-1, 0, 0, "seed"), (2**64, 0, 0, "seed"), (0, -1, 0, "request"), (0, 0, -1, "sample")],
)
def test_out_of_range_is_refused_by_name(seed: int, request_id: int, sample: int, name: str) -> None:
    """A negative seed must not wrap around to another one."""
    with pytest.raises(ForerunError, match=f"^{name} is "):
        Streams(seed, request_id, sample)
