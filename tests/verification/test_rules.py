"""What every acceptance rule must do, call by call; whole generations are enumerated in tests/exactness."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from forerun.distributions import DenseLaw, Law, PointLaw
from forerun.errors import ForerunError
from forerun.recipes import RULES, rule_named
from forerun.verification import (
    Outcome,
    Proposal,
    Rule,
    agreement,
    block_verification,
    greedy,
    lenient,
    token_level,
    typical_acceptance,
)

VOCAB_SIZE = 4
ALL: dict[str, Rule] = {name: rule_named(name, lossy=True) for name in RULES}
SAMPLING = {name: rule for name, rule in ALL.items() if name != "greedy"}
row_weights = st.lists(st.floats(0.01, 1.0), min_size=VOCAB_SIZE, max_size=VOCAB_SIZE)
token = st.integers(0, VOCAB_SIZE - 1)
numbers = st.floats(0.0, 1.0, exclude_max=True)


def several(data: st.DataObject, what: st.SearchStrategy[object], count: int) -> list[object]:
    """Exactly ``count`` of them."""
    return data.draw(st.lists(what, min_size=count, max_size=count))


def dense(data: st.DataObject, count: int) -> DenseLaw:
    """Random rows without zeros."""
    weights = torch.tensor(several(data, row_weights, count), dtype=torch.float64).reshape(count, VOCAB_SIZE)
    return DenseLaw(weights / weights.sum(-1, keepdim=True))


def point(data: st.DataObject, count: int) -> PointLaw:
    """Random certain tokens."""
    return PointLaw(torch.tensor(several(data, token, count), dtype=torch.int64), VOCAB_SIZE)


def float64(values: object) -> torch.Tensor:
    """A float64 tensor."""
    return torch.tensor(values, dtype=torch.float64)


def same(left: Outcome, right: Outcome) -> None:
    """Both decide alike and teach the same up to the first 0."""
    assert left.accepted == right.accepted
    assert torch.allclose(left.emission.dense(), right.emission.dense(), rtol=0.0, atol=1e-14)
    assert torch.allclose(left.prefix_weights, right.prefix_weights, rtol=0.0, atol=1e-14)
    reached = torch.cat([torch.ones(1).double(), left.prefix_weights])[:-1] > 0.0
    assert torch.allclose(left.overlaps[reached], right.overlaps[reached], rtol=0.0, atol=1e-14)


@given(data=st.data(), horizon=st.integers(0, 4), one_hot=st.booleans())
def test_greedy_targets_leave_no_choice(data: st.DataObject, horizon: int, one_hot: bool) -> None:
    """At temperature 0 all rules are one: the loop below. C17's last line, for every rule, lossy ones too."""
    target = point(data, horizon + 1)
    drafted = torch.tensor(several(data, token, horizon), dtype=torch.int64)
    law: Law = PointLaw(drafted, VOCAB_SIZE) if one_hot else dense(data, horizon)
    uniforms = float64(several(data, numbers, horizon))
    choices = target.token_ids.tolist()
    accepted = 0
    while accepted < horizon and drafted[accepted] == choices[accepted]:
        accepted += 1
    token_wise = token_level(target, Proposal(drafted, law), uniforms=uniforms)
    for rule in ALL.values():
        outcome = rule.verify(target, Proposal(drafted, law), uniforms=uniforms)
        assert outcome.accepted == accepted
        assert isinstance(outcome.emission, PointLaw)
        assert outcome.emission.token_ids.tolist() == [choices[accepted]]
        same(outcome, token_wise)


@pytest.mark.parametrize("rule", SAMPLING.values(), ids=SAMPLING.keys())
@given(data=st.data(), kinds=st.tuples(st.booleans(), st.booleans()), horizon=st.integers(1, 3))
def test_point_laws_and_their_dense_twins_agree(
    rule: Rule, data: st.DataObject, kinds: tuple[bool, bool], horizon: int
) -> None:
    """Shortcuts for one-hot laws must not decide otherwise than the general path."""
    target: Law = point(data, horizon + 1) if kinds[0] else dense(data, horizon + 1)
    drafted = torch.tensor(several(data, token, horizon), dtype=torch.int64)
    law: Law = PointLaw(drafted, VOCAB_SIZE) if kinds[1] else dense(data, horizon)
    uniforms = float64(several(data, numbers, horizon))
    short = rule.verify(target, Proposal(drafted, law), uniforms=uniforms)
    long = rule.verify(DenseLaw(target.dense()), Proposal(drafted, DenseLaw(law.dense())), uniforms=uniforms)
    same(short, long)


@pytest.mark.parametrize("rule", SAMPLING.values(), ids=SAMPLING.keys())
@given(data=st.data(), horizon=st.integers(0, 3))
def test_feedback_does_not_depend_on_the_numbers(rule: Rule, data: st.DataObject, horizon: int) -> None:
    """Weights and overlaps are means over the numbers; one that looked at them would teach the same thing twice."""
    target, law = dense(data, horizon + 1), dense(data, horizon)
    proposal = Proposal(torch.tensor(several(data, token, horizon), dtype=torch.int64), law)
    first, second = (rule.verify(target, proposal, uniforms=float64(several(data, numbers, horizon))) for _ in range(2))
    assert torch.equal(first.accept_probabilities, second.accept_probabilities)
    assert torch.equal(first.overlaps, second.overlaps)
    assert bool((first.prefix_weights <= 1.0 + 1e-14).all())


@pytest.mark.parametrize("rule", ALL.values(), ids=ALL.keys())
def test_horizon_zero_is_plain_decoding(rule: Rule) -> None:
    """No draft, no numbers, the target's law."""
    target = PointLaw(torch.tensor([2]), VOCAB_SIZE)
    outcome = rule.verify(
        target, Proposal(torch.tensor([], dtype=torch.int64), target.rows(0, 0)), uniforms=float64([])
    )
    assert outcome.accepted == 0
    assert torch.equal(outcome.emission.dense(), target.dense())
    assert outcome.accept_probabilities.shape == outcome.overlaps.shape == outcome.prefix_weights.shape == (0,)


@pytest.mark.parametrize("rule", ALL.values(), ids=ALL.keys())
@pytest.mark.parametrize(
    ("num_rows", "vocab_size", "uniforms", "message"),
    [(2, 3, [0.5, 0.5], "needs 3 rows"), (3, 4, [0.5, 0.5], "over the same tokens"), (3, 3, [0.5], "uniforms have")],
)
def test_parts_that_do_not_fit_are_refused(
    rule: Rule, num_rows: int, vocab_size: int, uniforms: list[float], message: str
) -> None:
    """One target row too few (no bonus row) is the commonest wiring error."""
    proposal = Proposal(torch.tensor([0, 1]), PointLaw(torch.tensor([0, 1]), 3))
    target = PointLaw(torch.tensor([0] * num_rows), vocab_size)
    with pytest.raises(ForerunError, match=message):
        rule.verify(target, proposal, uniforms=float64(uniforms))


def test_greedy_refuses_a_target_that_samples() -> None:
    """Comparing argmaxes at temperature 1 would make every answer greedy without a word."""
    target = DenseLaw(torch.full((2, 4), 0.25))
    with pytest.raises(ForerunError, match="for temperature 0 only") as caught:
        greedy(target, Proposal(torch.tensor([0]), target.rows(0, 1)), uniforms=float64([0.5]))
    assert "\n" not in str(caught.value)


def test_a_later_token_passes_behind_one_that_fails() -> None:
    """Block verification by hand: weights 1/2 and 3/4, nothing left to cover after the first token."""
    target = DenseLaw(float64([[0.25, 0.75], [0.25, 0.75], [1.0, 0.0]]))
    proposal = Proposal(torch.tensor([0, 1]), DenseLaw(float64([[0.5, 0.5]] * 2)))
    for number, accepted, emission in ((0.74, 2, [1.0, 0.0]), (0.75, 0, [0.0, 1.0])):
        outcome = block_verification(target, proposal, uniforms=float64([0.99, number]))
        assert outcome.accepted == accepted
        assert outcome.emission.dense().tolist() == [emission]
        assert outcome.prefix_weights.tolist() == [0.5, 0.75]
        assert outcome.accept_probabilities.tolist() == [0.5, 1.5]
        # draft mass that would stand: min(1/2, 1/4) + min(1/2, 3/4); then all of it, since 1/2 * target <= draft
        assert outcome.overlaps.tolist() == [0.75, 1.0]


def test_the_rule_objects_are_the_functions() -> None:
    """The engine swaps rules through this seam; an object that calls another function would pass as the wrong rule."""
    target = DenseLaw(float64([[0.2, 0.4, 0.4], [0.2, 0.5, 0.3], [0.3, 0.3, 0.4]]))
    proposal = Proposal(torch.tensor([0, 1]), DenseLaw(float64([[0.5, 0.3, 0.2], [0.6, 0.2, 0.2]])))
    uniforms = float64([0.55, 0.2])
    found = {name: rule.verify(target, proposal, uniforms=uniforms) for name, rule in SAMPLING.items()}
    expected = {
        "token-level": token_level(target, proposal, uniforms=uniforms),
        "block": block_verification(target, proposal, uniforms=uniforms),
        "agreement": agreement(target, proposal, uniforms=uniforms),
        "typical": typical_acceptance(target, proposal, uniforms=uniforms),
        "lenient": lenient(target, proposal, uniforms=uniforms, lenience=0.5),
    }
    for name, outcome in found.items():
        assert torch.equal(outcome.accept_probabilities, expected[name].accept_probabilities)
        assert torch.equal(outcome.emission.dense(), expected[name].emission.dense())
    assert len({tuple(outcome.accept_probabilities.tolist()) for outcome in found.values()}) == len(found)
    assert {name: rule.name for name, rule in ALL.items()} == {name: name for name in ALL}
