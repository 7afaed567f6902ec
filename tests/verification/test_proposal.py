"""A proposal cannot be built from tokens that its law cannot have produced."""

import pytest
import torch

from forerun.distributions import DenseLaw, PointLaw
from forerun.errors import ForerunError
from forerun.verification import Proposal

LAW = DenseLaw(torch.tensor([[0.5, 0.5, 0.0], [0.25, 0.25, 0.5]], dtype=torch.float64))


def test_rows_and_tokens_must_match() -> None:
    """A law row too few shifts all later rows against their tokens."""
    with pytest.raises(ForerunError, match="1 tokens but a law of 2 rows"):
        Proposal(torch.tensor([0]), LAW)


@pytest.mark.parametrize("bad", [-1, 3])
def test_ids_must_lie_in_the_vocabulary(bad: int) -> None:
    """Padding of -1 would gather the last token's probability."""
    with pytest.raises(ForerunError, match="vocabulary of 3"):
        Proposal(torch.tensor([0, bad]), LAW)


def test_tokens_must_have_mass() -> None:
    """A law that excludes its own token is not the law that was sampled."""
    with pytest.raises(ForerunError, match="draft token 2 at position 0 has probability 0"):
        Proposal(torch.tensor([2, 2]), LAW)
    with pytest.raises(ForerunError, match="draft token 1 at position 1"):
        Proposal(torch.tensor([0, 1]), PointLaw(torch.tensor([0, 0]), 3))


def test_horizon_counts_the_tokens() -> None:
    """No tokens are a proposal too."""
    assert Proposal(torch.tensor([0, 2]), LAW).horizon == 2
    assert Proposal(torch.tensor([], dtype=torch.int64), LAW.rows(0, 0)).horizon == 0
