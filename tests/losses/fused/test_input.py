"""What the fused path refuses, in one line that says what to do."""

import math

import pytest
import torch

from forerun.errors import ForerunError
from forerun.losses.fused import Divergence, Projection, TargetStates, TopKTarget, fused_sum, fused_values
from tests.support.fused import problem

TV = Divergence(total_variation=1.0)


def test_divergences_that_are_none() -> None:
    for wrong in ({}, {"tvp": -1.0}, {"tvp": math.nan}, {"tvp": math.inf}):
        with pytest.raises(ForerunError, match="weights must be"):
            Divergence(**wrong)
    with pytest.raises(ForerunError, match="beta is"):
        Divergence(tvp=1.0, beta=1.5)


def test_what_a_divergence_needs() -> None:
    given = problem()
    with pytest.raises(ForerunError, match="give the data tokens"):
        fused_values(given.draft, given.target, Divergence(cross_entropy=1.0))
    with pytest.raises(ForerunError, match="give TargetStates or TopKTarget"):
        fused_values(given.draft, None, TV)
    fused_values(given.draft, None, Divergence(cross_entropy=1.0), labels=given.labels)


def test_targets_that_are_none() -> None:
    given = problem()
    with pytest.raises(ForerunError, match="no token ids"):
        TargetStates(
            hidden=given.target_hidden,
            weight=given.target_weight,
            draft_token_ids=torch.arange(3),
            log_normaliser=torch.zeros(40),
        )
    with pytest.raises(ForerunError, match="soft_cap is 0"):
        TargetStates(hidden=given.target_hidden, weight=given.target_weight, soft_cap=0.0)


@pytest.mark.usefixtures("unchecked_shapes")
def test_shapes_that_do_not_fit() -> None:
    """Catches silent broadcasting of one position over a batch."""
    given = problem()
    one = TargetStates(hidden=given.target_hidden[:1], weight=given.target_weight)
    narrow = TargetStates(hidden=given.target_hidden, weight=given.target_weight[:9])
    for target, message in ((one, "target hidden .* positions"), (narrow, "law has 9 tokens, the draft's weight 97")):
        with pytest.raises(ForerunError, match=message):
            fused_values(given.draft, target, TV)
    with pytest.raises(ForerunError, match="differ in shape"):
        TopKTarget(token_ids=torch.zeros(4, 3, dtype=torch.int64), log_probs=torch.zeros(4, 2))
    with pytest.raises(ForerunError, match=r"mask .* positions"):
        fused_values(given.draft, given.target, TV, mask=torch.ones(1, dtype=torch.bool))
    with pytest.raises(ForerunError, match=r"labels .* positions"):
        fused_values(given.draft, given.target, TV, labels=given.labels[:5])
    with pytest.raises(ForerunError, match="do not broadcast"):
        fused_sum(given.draft, given.target, TV, weights=torch.ones(7))
    with pytest.raises(ForerunError, match="bias has 3 tokens"):
        fused_values(given.draft, given.target, TV, bias=torch.zeros(3))
    other = Projection(hidden=given.hidden, weight=given.weight[:5])
    with pytest.raises(ForerunError, match="weight has 5 tokens"):
        fused_values([given.draft, other], given.target, TV)


def test_too_little_to_work_with() -> None:
    given = problem()
    with pytest.raises(ForerunError, match="at least 16"):
        fused_values(given.draft, given.target, TV, chunk=15)
    with pytest.raises(ForerunError, match="no projection"):
        fused_values([], given.target, TV)
