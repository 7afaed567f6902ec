"""A small model that drafts trees: their shape, their laws, and what it keeps."""

from typing import final

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from forerun.distributions import DenseLaw, Processing, SamplingParams, law_from_logits
from forerun.drafters import DraftModelTree, TreeDrafter, TreeDrafterSession
from forerun.errors import ForerunError
from forerun.models import TableTarget, Target
from forerun.verification import Candidates, TreeProposal, excluding
from tests.support.targets import random_table

VOCAB = 5
TARGET = random_table(1, vocab_size=VOCAB)
SMALL = random_table(2, vocab_size=VOCAB, order=4)  # sees whole paths and what stands before them
IDS = [3, 1, 4, 1]
LAST = 2
BRANCHING = (2, 3, 1)
PLAIN = SamplingParams()


def drafter_of(candidates: Candidates, model: Target = SMALL, branching: tuple[int, ...] = BRANCHING) -> DraftModelTree:
    return DraftModelTree(model, TARGET, branching=branching, candidates=candidates)


def started(drafter: TreeDrafter) -> TreeDrafterSession:
    session = drafter.new_session()
    session.extend(torch.tensor(IDS), torch.zeros(len(IDS), 0, 1))
    return session


def uniforms(count: int, seed: int = 0) -> Float[Tensor, " count"]:
    return torch.rand(count, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def propose(drafter: TreeDrafter, depth: int = 3, *, seed: int = 0, params: SamplingParams = PLAIN) -> TreeProposal:
    numbers = uniforms(drafter.max_nodes(depth), seed)
    return started(drafter).propose_tree(LAST, depth, Processing(params, [*IDS, LAST]), uniforms=numbers)


def law_after(path: tuple[int, ...], params: SamplingParams, model: Target = SMALL) -> DenseLaw:
    """The oracle runs the small model on the whole prefix."""
    prefix = torch.tensor([*IDS, LAST, *path])
    law = law_from_logits(model.forward(prefix, model.new_cache(), num_logits=1).logits, params)
    return DenseLaw(law.dense())


@pytest.mark.parametrize("candidates", Candidates)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_shape_is_fixed(candidates: Candidates, depth: int) -> None:
    """Level after level, the children of a node side by side; fewer numbers suffice for a smaller depth."""
    drafter = drafter_of(candidates)
    proposal = propose(drafter, depth)
    assert proposal.parents == ((-1,) * 2 + (0,) * 3 + (1,) * 3 + tuple(range(2, 8)))[: (2, 8, 14)[depth - 1]]
    assert (len(proposal), proposal.depth) == (drafter.max_nodes(depth), depth)
    assert (proposal.candidates, proposal.cut_short) == (candidates, False)
    assert drafter.max_horizon == 3 and drafter.name == "model-tree:table:2x3x1"


@pytest.mark.parametrize("params", [PLAIN, SamplingParams(temperature=0.6, top_k=3, min_p=0.05)])
@pytest.mark.parametrize("candidates", [Candidates.WITH_REPLACEMENT, Candidates.WITHOUT_REPLACEMENT])
def test_siblings_are_draws_from_the_small_models_own_law(candidates: Candidates, params: SamplingParams) -> None:
    """Catches a law of another path, a number used twice, and a law that is not the one that was drawn from."""
    for seed in range(5):
        proposal = propose(drafter_of(candidates), seed=seed, params=params)
        numbers = uniforms(14, seed)
        assert proposal.law is not None
        for parent, siblings in proposal.children.items():
            law = law_after(() if parent < 0 else proposal.paths[parent], params)
            left = law
            for place, node in enumerate(siblings):
                torch.testing.assert_close(proposal.law.rows(node, node + 1).dense(), law.dense(), rtol=0, atol=1e-15)
                if place > 0 and candidates is Candidates.WITHOUT_REPLACEMENT:
                    left = DenseLaw(excluding(left, proposal.token_ids[node - 1 : node]).dense())
                assert int(left.sample(uniforms=numbers[node : node + 1])) == int(proposal.token_ids[node])


def test_deterministic_siblings_are_the_most_probable() -> None:
    """Ranked by the small model's law after their own path, whatever the numbers."""
    proposal = propose(drafter_of(Candidates.DETERMINISTIC))
    assert proposal.law is None
    for parent, siblings in proposal.children.items():
        probs = law_after(() if parent < 0 else proposal.paths[parent], PLAIN).dense()[0]
        ranked = sorted(range(VOCAB), key=lambda token, probs=probs: -float(probs[token]))  # type: ignore[misc]
        assert [int(proposal.token_ids[node]) for node in siblings] == ranked[: len(siblings)]
    assert propose(drafter_of(Candidates.DETERMINISTIC), seed=1).paths == proposal.paths


def test_greedy_siblings_follow_by_their_logits() -> None:
    """At temperature 0 the law has one token; a tree of one branch would waste the others."""
    greedy = propose(drafter_of(Candidates.DETERMINISTIC), params=SamplingParams(temperature=0.0))
    assert greedy.paths == propose(drafter_of(Candidates.DETERMINISTIC)).paths


def test_a_law_with_few_tokens_has_few_children() -> None:
    """Top-2 without replacement: no third sibling can be drawn, and none with probability 0 is invented."""
    params = SamplingParams(top_k=2)
    for candidates in (Candidates.WITHOUT_REPLACEMENT, Candidates.DETERMINISTIC):
        proposal = propose(drafter_of(candidates, branching=(3, 1)), 2, params=params)
        assert proposal.parents == (-1, -1, 0, 1)
    repeated = propose(drafter_of(Candidates.WITH_REPLACEMENT, branching=(3, 1)), 2, params=params)
    assert repeated.parents == (-1, -1, -1, 0, 1, 2)


def test_proposing_changes_nothing() -> None:
    """Catches branches that stay in the small model's cache although they may be rejected."""
    drafter = drafter_of(Candidates.WITHOUT_REPLACEMENT)
    session, processing = started(drafter), Processing(PLAIN, [*IDS, LAST])
    first = session.propose_tree(LAST, 3, processing, uniforms=uniforms(14))
    session.propose_tree(LAST, 2, processing, uniforms=uniforms(8, seed=3))
    again = session.propose_tree(LAST, 3, processing, uniforms=uniforms(14))
    assert session.length == len(IDS)
    assert first.paths == again.paths
    session.extend(torch.tensor([LAST, 0]), torch.zeros(2, 0, 1))
    later = session.propose_tree(4, 1, Processing(PLAIN, [*IDS, LAST, 0, 4]), uniforms=uniforms(2))
    prefix = torch.tensor([*IDS, LAST, 0, 4])
    logits = SMALL.forward(prefix, SMALL.new_cache(), num_logits=1).logits
    assert later.law is not None
    torch.testing.assert_close(later.law.rows(0, 1).dense(), law_from_logits(logits, PLAIN).dense(), rtol=0, atol=1e-15)


@final
class BrokenAfter:
    """A table that gives no law after some token."""

    def __init__(self, token: int) -> None:
        """Stores the token."""
        self.token = token

    def __call__(self, prefix: tuple[int, ...]) -> Float[Tensor, " vocab"]:
        """NaN after the token."""
        row = torch.zeros(VOCAB, dtype=torch.float64)
        return row + torch.nan if prefix and prefix[-1] == self.token else row


@pytest.mark.parametrize("candidates", Candidates)
def test_a_node_without_a_law_gets_no_children(candidates: Candidates) -> None:
    """One NaN row ends its own branch and no other, and is counted."""
    model = TableTarget(BrokenAfter(0), vocab_size=VOCAB)
    proposal = propose(drafter_of(candidates, model, (VOCAB, 1)), 2)
    grown = {parent for parent in proposal.children if parent >= 0}
    assert grown == {node for node in range(VOCAB) if int(proposal.token_ids[node]) != 0}
    assert proposal.cut_short == (0 in proposal.token_ids[:VOCAB].tolist())
    nothing = propose(drafter_of(candidates, TableTarget(BrokenAfter(LAST), vocab_size=VOCAB)))
    assert (len(nothing), nothing.cut_short) == (0, True)


@pytest.mark.parametrize("candidates", Candidates)
def test_a_tree_that_is_asked_for_is_the_one_of_that_branching(candidates: Candidates) -> None:
    """More or fewer children than the drafter's own shape; a group is never larger than the vocabulary."""
    own = drafter_of(candidates, branching=(1, 9 - VOCAB, 2))
    numbers, processing = uniforms(99), Processing(PLAIN, [*IDS, LAST])
    for branching in ((2, 3), (VOCAB, 1), (1,)):
        asked = started(own).propose_tree(LAST, len(branching), processing, uniforms=numbers, branching=branching)
        fixed = drafter_of(candidates, branching=branching)
        plain = started(fixed).propose_tree(LAST, len(branching), processing, uniforms=numbers)
        assert (asked.paths, asked.parents) == (plain.paths, plain.parents)
    wide = started(own).propose_tree(LAST, 1, processing, uniforms=numbers, branching=(VOCAB + 2,))
    assert len(wide) == (VOCAB + 2 if candidates is Candidates.WITH_REPLACEMENT else VOCAB)


def test_its_limits_are_the_small_models() -> None:
    drafter = DraftModelTree(random_table(2, vocab_size=VOCAB, max_positions=9), TARGET, branching=(2,))
    assert (drafter.max_positions, drafter.max_horizon, drafter.captured_layers) == (9, 1, ())


@pytest.mark.parametrize("branching", [(), (2, 0), (VOCAB + 1,), (2, -1)])
def test_impossible_shapes_are_refused(branching: tuple[int, ...]) -> None:
    with pytest.raises(ForerunError, match="each from 1 to the 5 tokens"):
        DraftModelTree(SMALL, TARGET, branching=branching)


def test_another_vocabulary_is_refused() -> None:
    with pytest.raises(ForerunError, match="choose a pair that shares one tokenizer"):
        DraftModelTree(random_table(3, vocab_size=VOCAB + 1), TARGET, branching=(2,))
