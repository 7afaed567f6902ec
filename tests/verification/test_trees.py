"""Rules for trees, call by call; whole generations are enumerated in tests/exactness."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from forerun.distributions import DenseLaw, Law, PointLaw, stack_laws
from forerun.errors import ForerunError
from forerun.verification import (
    Candidates,
    Outcome,
    Proposal,
    TargetOnly,
    TreeAgreement,
    TreeProposal,
    TreeRule,
    TreeTokenLevel,
    agreement,
    multi_round,
    token_level,
)
from tests.exactness.trees import acceptances

DETERMINISTIC, WITH, WITHOUT = Candidates.DETERMINISTIC, Candidates.WITH_REPLACEMENT, Candidates.WITHOUT_REPLACEMENT
VOCAB_SIZE = 4
row_weights = st.lists(st.floats(0.01, 1.0), min_size=VOCAB_SIZE, max_size=VOCAB_SIZE)
numbers = st.floats(0.0, 1.0, exclude_max=True)
tokens_of = st.integers(0, VOCAB_SIZE - 1)


def dense(rows: list[list[float]]) -> DenseLaw:
    """Rows proportional to the weights."""
    return DenseLaw(torch.tensor([[weight / sum(row) for weight in row] for row in rows], dtype=torch.float64))


def float64(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def chain(tokens: list[int], candidates: Candidates, law: Law) -> TreeProposal:
    """A tree with one child per node."""
    parents = tuple(range(-1, len(tokens) - 1))
    return TreeProposal(torch.tensor(tokens), parents, candidates, None if candidates is DETERMINISTIC else law)


@given(data=st.data(), horizon=st.integers(1, 4), candidates=st.sampled_from(Candidates))
def test_a_chain_is_a_tree_with_one_child_per_node(data: st.DataObject, horizon: int, candidates: Candidates) -> None:
    """Path, emission and feedback against ``token_level`` and ``agreement`` with the same numbers.

    Catches rows shifted by one, and feedback of depths that were not tried.
    """
    target = dense(data.draw(st.lists(row_weights, min_size=horizon + 1, max_size=horizon + 1)))
    tokens = data.draw(st.lists(tokens_of, min_size=horizon, max_size=horizon))
    uniforms = float64(data.draw(st.lists(numbers, min_size=horizon, max_size=horizon)))
    law: Law = dense(data.draw(st.lists(row_weights, min_size=horizon, max_size=horizon)))
    if candidates is DETERMINISTIC:
        law = PointLaw(torch.tensor(tokens), VOCAB_SIZE)
    proposal = Proposal(torch.tensor(tokens), law)
    pairs: list[tuple[TreeRule, Outcome]] = [
        (TreeTokenLevel(), token_level(target, proposal, uniforms=uniforms)),
        (TreeAgreement(), agreement(target, proposal, uniforms=uniforms)),
    ]
    for rule, expected in pairs:
        outcome = rule.verify(target, chain(tokens, candidates, law), uniforms=uniforms)
        tried = min(expected.accepted + 1, horizon)
        assert outcome.path == tuple(range(expected.accepted))
        assert torch.allclose(outcome.emission.dense(), expected.emission.dense(), rtol=0.0, atol=1e-12)
        assert torch.allclose(outcome.accept_probabilities, expected.accept_probabilities[:tried], rtol=0.0, atol=1e-12)
        assert torch.allclose(outcome.overlaps, expected.overlaps[:tried], rtol=0.0, atol=1e-12)
        assert outcome.prefix_weights.tolist() == [float(depth < expected.accepted) for depth in range(tried)]


@given(data=st.data(), count=st.integers(1, 3), candidates=st.sampled_from(Candidates))
def test_outcome_follows_from_its_definition(data: st.DataObject, count: int, candidates: Candidates) -> None:
    """One group of siblings against plain Python: who is accepted, with what probability, and on average."""
    target, draft = dense([data.draw(row_weights)] * (count + 1)), dense([data.draw(row_weights)] * count)
    unique = candidates is not WITH
    tokens = data.draw(st.lists(tokens_of, min_size=count, max_size=count, unique=unique))
    uniforms = data.draw(st.lists(numbers, min_size=count, max_size=count))
    law = None if candidates is DETERMINISTIC else draft
    proposal = TreeProposal(torch.tensor(tokens), (-1,) * count, candidates, law)
    outcome = TreeTokenLevel().verify(target, proposal, uniforms=float64(uniforms))

    rows = target.dense()[0].tolist(), draft.dense()[0].tolist()
    thresholds = acceptances(candidates, *rows, tuple(tokens))
    passing = [place for place, threshold in enumerate(thresholds) if uniforms[place] < threshold]
    assert outcome.path == tuple(passing[:1])

    def accepted_at_all(last: int) -> float:
        rejected = 1.0
        for threshold in acceptances(candidates, *rows, (*tokens[:-1], last)):
            rejected *= 1.0 - threshold
        return 1.0 - rejected

    assert outcome.accept_probabilities.tolist() == pytest.approx([accepted_at_all(tokens[-1])], abs=1e-12)
    weights = rows[1]
    if candidates is DETERMINISTIC:
        weights = [float(token == tokens[-1]) for token in range(VOCAB_SIZE)]
    elif candidates is WITHOUT:
        weights = [0.0 if token in tokens[:-1] else prob for token, prob in enumerate(weights)]
    mean = sum(prob * accepted_at_all(last) for last, prob in enumerate(weights) if prob > 0.0) / sum(weights)
    assert outcome.overlaps.tolist() == pytest.approx([mean], abs=1e-12)


@given(data=st.data(), candidates=st.sampled_from(Candidates))
def test_agreement_takes_the_first_child_with_the_targets_token(data: st.DataObject, candidates: Candidates) -> None:
    """The target's token is drawn with the first sibling's number, and emitted if no child has it."""
    target = dense([data.draw(row_weights)] * 3)
    tokens = data.draw(st.lists(tokens_of, min_size=2, max_size=2, unique=candidates is not WITH))
    uniforms = float64(data.draw(st.lists(numbers, min_size=2, max_size=2)))
    law = None if candidates is DETERMINISTIC else dense([[1.0] * VOCAB_SIZE] * 2)
    proposal = TreeProposal(torch.tensor(tokens), (-1, -1), candidates, law)
    outcome = TreeAgreement().verify(target, proposal, uniforms=uniforms)
    chosen = int(target.rows(0, 1).sample(uniforms=uniforms[:1]))
    if chosen in tokens:
        assert outcome.path == (tokens.index(chosen),)
        assert torch.equal(outcome.emission.dense(), target.rows(1, 2).dense())
    else:
        assert outcome.path == ()
        assert outcome.emission.sample(uniforms=float64([0.5])).tolist() == [chosen]
    assert outcome.accept_probabilities.tolist() == pytest.approx(
        [sum(float(target.dense()[0, token]) for token in set(tokens))], abs=1e-12
    )


@pytest.mark.parametrize("rule", [TreeTokenLevel(), TargetOnly(), TreeAgreement()])
def test_a_greedy_target_walks_down_its_own_choices(rule: TreeRule) -> None:
    """At temperature 0 the path is the target's, whatever the numbers, and a miss is corrected by its choice."""
    tree = TreeProposal(torch.tensor([0, 1, 2, 3]), (-1, -1, 0, 1), DETERMINISTIC, None)
    for low, high in ((0.0, 0.0), (1.0 - 2.0**-53, 0.0), (0.0, 1.0 - 2.0**-53)):
        outcome = rule.verify(PointLaw(torch.tensor([1, 0, 3, 0, 2]), 4), tree, uniforms=float64([low, high] * 2))
        assert outcome.path == (1, 3)
        assert outcome.emission.dense().argmax().item() == 2
        outcome = rule.verify(PointLaw(torch.tensor([0, 3, 0, 0, 0]), 4), tree, uniforms=float64([low, high] * 2))
        assert outcome.path == (0,)
        assert outcome.emission.dense()[0].tolist() == [0.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize("rule", [TreeTokenLevel(), TargetOnly(), TreeAgreement()])
def test_an_empty_tree_is_plain_decoding(rule: TreeRule) -> None:
    target = dense([[0.1, 0.2, 0.3, 0.4]])
    empty = TreeProposal(torch.tensor([], dtype=torch.int64), (), DETERMINISTIC, None)
    outcome = rule.verify(target, empty, uniforms=float64([]))
    assert (outcome.path, len(outcome.overlaps), len(outcome.accept_probabilities)) == ((), 0, 0)
    assert torch.equal(outcome.emission.dense(), target.dense())


@pytest.mark.parametrize("candidates", [WITH, WITHOUT])
def test_an_excluded_child_is_rejected_for_zero(candidates: Candidates) -> None:
    """The strict comparison: u = 0 must not let a token pass that the target excludes."""
    target = DenseLaw(float64([0.0, 0.5, 0.25, 0.25]).repeat(3, 1))
    tree = TreeProposal(torch.tensor([0, 1]), (-1, -1), candidates, dense([[1.0] * 4] * 2))
    for rule in (TreeTokenLevel(), TargetOnly()):
        assert rule.verify(target, tree, uniforms=float64([0.0, 0.0])).path == (1,)


def test_what_does_not_fit_is_refused() -> None:
    """Rows, vocabulary, numbers and candidates."""
    tree = TreeProposal(torch.tensor([0, 3]), (-1, 0), DETERMINISTIC, None)
    row = dense([[1.0] * 4])
    for rule in (TreeTokenLevel(), TargetOnly(), TreeAgreement()):
        with pytest.raises(ForerunError, match="target law has 2 rows; a tree of 2 nodes"):
            rule.verify(stack_laws([row] * 2), tree, uniforms=float64([0.5, 0.5]))
        with pytest.raises(ForerunError, match="uniforms have shape"):
            rule.verify(stack_laws([row] * 3), tree, uniforms=float64([0.5]))
        with pytest.raises(ForerunError, match="vocabulary of 3"):
            rule.verify(dense([[1.0] * 3] * 3), tree, uniforms=float64([0.5, 0.5]))
    with pytest.raises(ForerunError, match="needs sampled candidates"):
        multi_round(stack_laws([row] * 3), tree, uniforms=float64([0.5, 0.5]))
    sampled = TreeProposal(torch.tensor([0]), (-1,), WITH, row)
    with pytest.raises(ForerunError, match="over 3 tokens and the draft's over 4"):
        TreeTokenLevel().verify(dense([[1.0] * 3] * 2), sampled, uniforms=float64([0.5]))
