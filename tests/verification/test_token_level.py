"""Token-level speculative sampling, call by call; whole generations are enumerated in tests/exactness."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from forerun.distributions import DenseLaw, Law, PointLaw
from forerun.errors import ForerunError
from forerun.verification import Proposal, TokenLevel, token_level
from tests.exactness.statistics import chi_square_p_value

VOCAB_SIZE = 4
row_weights = st.lists(st.floats(0.01, 1.0), min_size=VOCAB_SIZE, max_size=VOCAB_SIZE)
numbers = st.floats(0.0, 1.0, exclude_max=True)


def dense(rows: list[list[float]]) -> DenseLaw:
    """Rows proportional to the weights."""
    return DenseLaw(torch.tensor([[weight / sum(row) for weight in row] for row in rows], dtype=torch.float64))


def float64(values: list[float]) -> torch.Tensor:
    """A float64 tensor."""
    return torch.tensor(values, dtype=torch.float64)


@given(data=st.data(), horizon=st.integers(0, 4))
def test_outcome_follows_from_its_definition(data: st.DataObject, horizon: int) -> None:
    """Accepted count, emission and record of any proposal, from divisions in a plain loop."""
    target = dense(data.draw(st.lists(row_weights, min_size=horizon + 1, max_size=horizon + 1)))
    law = dense(data.draw(st.lists(row_weights, min_size=horizon, max_size=horizon))) if horizon else target.rows(0, 0)
    tokens = data.draw(st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=horizon, max_size=horizon))
    uniforms = data.draw(st.lists(numbers, min_size=horizon, max_size=horizon))
    outcome = token_level(target, Proposal(torch.tensor(tokens, dtype=torch.int64), law), uniforms=float64(uniforms))

    target_rows, draft_rows = target.dense().tolist(), law.dense().tolist()
    ratios = [target_rows[j][token] / draft_rows[j][token] for j, token in enumerate(tokens)]
    # Within an ulp of the ratio a division may differ from the product; such examples decide nothing.
    if any(abs(uniform - ratio) < 1e-15 for uniform, ratio in zip(uniforms, ratios, strict=True)):
        return
    accepted = 0
    while accepted < horizon and uniforms[accepted] < ratios[accepted]:
        accepted += 1
    assert outcome.accepted == accepted
    assert outcome.accept_probabilities.tolist() == pytest.approx([min(1.0, ratio) for ratio in ratios])
    for shared, left, right in zip(outcome.overlaps.tolist(), target_rows, draft_rows, strict=False):
        assert shared == pytest.approx(sum(map(min, left, right)), abs=1e-14)
    if accepted == horizon:
        expected = target_rows[horizon]
    else:
        pairs = zip(target_rows[accepted], draft_rows[accepted], strict=True)
        excess = [max(0.0, left - right) for left, right in pairs]
        expected = [left / sum(excess) for left in excess]
    assert outcome.emission.dense()[0].tolist() == pytest.approx(expected, abs=1e-12)


@given(data=st.data(), kinds=st.tuples(st.booleans(), st.booleans()))
def test_point_laws_and_their_dense_twins_agree(data: st.DataObject, kinds: tuple[bool, bool]) -> None:
    """Greedy and one-hot shortcuts must not decide otherwise than the general path."""
    ids = st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=2, max_size=2)
    drafted = torch.tensor(data.draw(ids))
    target: Law = PointLaw(torch.tensor([*data.draw(ids), 0]), VOCAB_SIZE)
    law: Law = PointLaw(drafted, VOCAB_SIZE)
    if not kinds[0]:
        target = dense(data.draw(st.lists(row_weights, min_size=3, max_size=3)))
    if not kinds[1]:
        law = dense(data.draw(st.lists(row_weights, min_size=2, max_size=2)))
    uniforms = float64(data.draw(st.lists(numbers, min_size=2, max_size=2)))
    short = token_level(target, Proposal(drafted, law), uniforms=uniforms)
    long = token_level(DenseLaw(target.dense()), Proposal(drafted, DenseLaw(law.dense())), uniforms=uniforms)
    assert short.accepted == long.accepted
    assert torch.allclose(short.emission.dense(), long.emission.dense(), rtol=0.0, atol=1e-15)
    assert torch.allclose(short.accept_probabilities, long.accept_probabilities, rtol=0.0, atol=1e-15)
    assert torch.allclose(short.overlaps, long.overlaps, rtol=0.0, atol=1e-15)


def test_nothing_after_a_rejection_counts() -> None:
    """Token 0 rejected, token 1 acceptable: one correction, from row 0."""
    target, law = dense([[1, 3], [3, 1], [1, 1]]), dense([[3, 1], [1, 1]])
    outcome = token_level(target, Proposal(torch.tensor([0, 0]), law), uniforms=float64([0.5, 0.5]))
    assert outcome.accepted == 0
    assert outcome.emission.dense().tolist() == [[0.0, 1.0]]
    assert outcome.accept_probabilities.tolist() == pytest.approx([1 / 3, 1.0])


def test_horizon_zero_is_plain_decoding() -> None:
    """No draft, no numbers, the target's law."""
    target = dense([[1, 2, 1]])
    empty = Proposal(torch.tensor([], dtype=torch.int64), target.rows(0, 0))
    outcome = token_level(target, empty, uniforms=float64([]))
    assert outcome.accepted == 0
    assert torch.equal(outcome.emission.dense(), target.dense())
    assert outcome.accept_probabilities.shape == outcome.overlaps.shape == (0,)


@pytest.mark.parametrize(
    ("num_rows", "vocab_size", "uniforms", "message"),
    [
        (2, 3, [0.5, 0.5], "needs 3 rows"),
        (4, 3, [0.5, 0.5], "needs 3 rows"),
        (3, 4, [0.5, 0.5], "over the same tokens"),
        (3, 3, [0.5], "uniforms have shape"),
        (3, 3, [0.5, 1.0], "outside"),
        (3, 3, [-0.1, 0.5], "outside"),
    ],
)
def test_parts_that_do_not_fit_are_refused(num_rows: int, vocab_size: int, uniforms: list[float], message: str) -> None:
    """One target row too few (no bonus row) is the commonest wiring error."""
    proposal = Proposal(torch.tensor([0, 1]), dense([[1, 1, 1]] * 2))
    target = dense([[1.0] * vocab_size] * num_rows)
    with pytest.raises(ForerunError, match=message):
        token_level(target, proposal, uniforms=float64(uniforms))


def test_the_rule_object_is_the_function() -> None:
    """The engine swaps rules through this seam."""
    rule = TokenLevel()
    proposal = Proposal(torch.tensor([0]), dense([[3, 1]]))
    target = dense([[1, 3], [1, 1]])
    for number in (0.1, 0.5):
        left = rule.verify(target, proposal, uniforms=float64([number]))
        right = token_level(target, proposal, uniforms=float64([number]))
        assert left.accepted == right.accepted
        assert torch.equal(left.emission.dense(), right.emission.dense())
    assert rule.exact
    assert rule.name == "token-level"


ALPHA = 1e-4
TOKENS = 200_000
HORIZON = 384


@pytest.mark.parametrize("seed", [201, 202])
def test_generation_chi_square(seed: int) -> None:
    """Declared: 200 000 tokens per seed from long drafts, three tests each at alpha 1e-4.

    All tokens against the target, disjoint pairs of tokens against independence, corrections against the residual.
    """
    target_probs, draft_probs = [0.5, 0.3, 0.2], [0.51, 0.296, 0.194]
    law, target = dense([draft_probs] * HORIZON), dense([target_probs] * (HORIZON + 1))
    generator = torch.Generator().manual_seed(seed)

    output: list[int] = []
    corrections = [0, 0, 0]
    while len(output) < TOKENS:
        draft_numbers, accept_numbers = torch.rand(2, HORIZON, dtype=torch.float64, generator=generator)
        emit_number = torch.rand(1, dtype=torch.float64, generator=generator)
        drafted = law.sample(uniforms=draft_numbers)
        outcome = token_level(target, Proposal(drafted, law), uniforms=accept_numbers)
        token = int(outcome.emission.sample(uniforms=emit_number))
        output += [*drafted[: outcome.accepted].tolist(), token]
        corrections[token] += outcome.accepted < HORIZON

    tokens = torch.tensor(output[:TOKENS])
    counts = torch.bincount(tokens, minlength=3).tolist()
    pairs = torch.bincount(tokens[::2] * 3 + tokens[1::2], minlength=9).tolist()
    pair_probs = [first * second for first in target_probs for second in target_probs]
    p_values = (
        chi_square_p_value(counts, target_probs),
        chi_square_p_value(pairs, pair_probs),
        chi_square_p_value(corrections, [0.0, 0.4, 0.6]),
    )
    assert min(p_values) > ALPHA, (counts, pairs, corrections, p_values)
    assert chi_square_p_value(counts, draft_probs) < ALPHA, counts  # the power to see the draft's law, 1 % away
