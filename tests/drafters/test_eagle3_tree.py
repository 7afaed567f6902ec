"""EAGLE's dynamic tree: the right paths, laws of the right prefixes, nothing left behind, and the target's law."""

from collections.abc import Sequence
from functools import cache

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from forerun.distributions import Processing, SamplingParams
from forerun.drafters import Eagle3Tree, Eagle3TreeSession, NetworkDrafter
from forerun.engine import generate
from forerun.errors import ForerunError
from forerun.models import TransformersTarget, tiny_target
from forerun.verification import Candidates, TreeProposal
from tests.engine.test_greedy import run_in_step
from tests.engine.test_law import ALPHA, SEED, TARGET, p_values
from tests.engine.test_law import VOCAB as SMALL_VOCAB
from tests.support.horizons import Forced
from tests.support.networks import every_other, tiny_drafter
from tests.support.targets import fresh_greedy, markov_target

VOCAB = 12
DEPTH, TOP_K, NODES = 4, 3, 14
IDS, LAST = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6]), 7
PLAIN = SamplingParams()
CLOSE = 1e-10
"""Float64: one pass over a frontier against one pass for each path."""


@cache
def target() -> TransformersTarget:
    return tiny_target(vocab_size=VOCAB)


@cache
def base(kind: str = "eagle3", *, pruned: bool = False) -> NetworkDrafter:
    return tiny_drafter(target(), kind=kind, vocabulary=every_other(target()) if pruned else None)


def tree_of(
    kind: str = "eagle3", candidates: Candidates = Candidates.DETERMINISTIC, *, pruned: bool = False
) -> Eagle3Tree:
    return Eagle3Tree(base(kind, pruned=pruned), top_k=TOP_K, num_nodes=NODES, candidates=candidates)


def features() -> Float[Tensor, "length layers hidden"]:
    return target().forward(IDS, target().new_cache(), captured=base().captured_layers).features


def started(drafter: Eagle3Tree) -> Eagle3TreeSession:
    """With its tokens in two pieces and another round's tree between them."""
    session = drafter.new_session()
    session.extend(IDS[:3], features()[:3])
    propose(session, depth=3, last=0)
    session.extend(IDS[3:], features()[3:])
    return session


def propose(
    session: Eagle3TreeSession,
    *,
    depth: int = DEPTH,
    last: int = LAST,
    params: SamplingParams = PLAIN,
    branching: tuple[int, ...] | None = None,
) -> TreeProposal:
    numbers = torch.rand(99, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    processing = Processing(params, [*IDS.tolist(), last])
    return session.propose_tree(last, depth, processing, uniforms=numbers, branching=branching)


def chain_law(kind: str, path: Sequence[int]) -> Float[Tensor, " vocab"]:
    """Of the token after a path, from a chain in a fresh context."""
    own = base(kind)
    with torch.inference_mode():
        context = own.network.new_context(own.borrowed, own.heads)
        context.extend(IDS, features())
        block = context.open(LAST, DEPTH)
        for length in range(len(path) + 1):
            logits = block.logits(torch.tensor(path[:length], dtype=torch.int64))
    return logits.softmax(-1)


def beams(kind: str, depth: int) -> dict[tuple[int, ...], float]:
    """EAGLE-2 by definition: the best `TOP_K` of a level get children; of all children the best `NODES` stay."""
    pool: dict[tuple[int, ...], float] = {}
    frontier: dict[tuple[int, ...], float] = {(): 0.0}
    for _ in range(depth):
        children = {}
        for path, score in frontier.items():
            log_probs = chain_law(kind, path).log()
            for token in log_probs.topk(TOP_K).indices.tolist():
                children[*path, token] = score + float(log_probs[token])
        pool |= children
        frontier = dict(sorted(children.items(), key=lambda item: -item[1])[:TOP_K])
    return dict(sorted(pool.items(), key=lambda item: -item[1])[:NODES])


@pytest.mark.parametrize("kind", ["eagle3", "eagle3, window"])
def test_the_tree_holds_the_most_probable_paths(kind: str) -> None:
    """Catches a mask that shows a node its cousins, positions that count nodes, and states of another parent."""
    drafter = tree_of(kind)
    for depth in (1, 2, DEPTH):
        proposal = propose(started(drafter), depth=depth)
        expected = beams(kind, depth)
        assert set(proposal.paths) == set(expected)
        assert len(proposal) == min(drafter.max_nodes(depth), NODES)
        for siblings in proposal.children.values():
            scores = [expected[proposal.paths[node]] for node in siblings]
            assert scores == sorted(scores, reverse=True)
    assert proposal.depth > 2


def test_a_greedy_request_ranks_by_logits() -> None:
    """At temperature 0 the law has one token; a tree of one branch would waste the others."""
    greedy = propose(started(tree_of()), params=SamplingParams(temperature=0.0))
    assert greedy.paths == propose(started(tree_of())).paths


def test_no_node_has_a_token_that_cannot_be_drafted() -> None:
    """Draft ids are not target ids, and six of twelve tokens are all that there are."""
    for params in (PLAIN, SamplingParams(temperature=0.0)):
        wide = Eagle3Tree(base(pruned=True), top_k=6, num_nodes=NODES)
        proposal = propose(started(wide), params=params)
        assert len(proposal) == NODES and not bool((proposal.token_ids % 2).any())


@pytest.mark.parametrize("kind", ["eagle3", "eagle3, window"])
def test_drawn_siblings_come_with_the_law_of_their_path(kind: str) -> None:
    """Every level has its share, 14 // 4 = 3 nodes, all children of the most probable node of the level before."""
    proposal = propose(started(tree_of(kind, Candidates.WITHOUT_REPLACEMENT)))
    assert proposal.law is not None
    assert [len(path) for path in proposal.paths] == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
    for node, (path, parent) in enumerate(zip(proposal.paths, proposal.parents, strict=True)):
        law = proposal.law.rows(node, node + 1).dense()[0]
        torch.testing.assert_close(law, chain_law(kind, path[:-1]), rtol=0, atol=CLOSE)
        if parent >= 0:
            rivals = proposal.children[proposal.parents[parent]]
            probs = {rival: float(proposal.law.prob_of(proposal.token_ids)[rival]) for rival in rivals}
            assert parent == max(probs, key=probs.__getitem__)


@pytest.mark.parametrize("candidates", [Candidates.DETERMINISTIC, Candidates.WITHOUT_REPLACEMENT])
def test_a_tree_that_is_asked_for_is_drawn(candidates: Candidates) -> None:
    """Every node of a level has as many children, the most probable ones or draws from the law of their path.

    Catches a shape that is cut to the drafter's own budget, ranked, or drawn for another level.
    """
    proposal = propose(started(tree_of(candidates=candidates)), depth=3, branching=(2, 1, 13))
    assert [len(path) for path in proposal.paths] == [1] * 2 + [2] * 2 + [3] * 2 * VOCAB
    for parent, siblings in proposal.children.items():
        path = () if parent < 0 else proposal.paths[parent]
        law = chain_law("eagle3", path)
        if proposal.law is not None:
            found = proposal.law.rows(siblings[0], siblings[0] + 1).dense()[0]
            torch.testing.assert_close(found, law, rtol=0, atol=CLOSE)
        else:
            assert proposal.token_ids[list(siblings)].tolist() == law.topk(len(siblings)).indices.tolist()


def test_proposing_changes_nothing() -> None:
    """Catches branches that stay in the context although they may be rejected."""
    session = started(tree_of())
    first = propose(session)
    propose(session, depth=2, last=1)
    assert session.length == len(IDS)
    assert propose(session).paths == first.paths


@pytest.mark.parametrize("candidates", [Candidates.DETERMINISTIC, Candidates.WITHOUT_REPLACEMENT])
def test_greedy_ids_are_those_of_plain_decoding(candidates: Candidates) -> None:
    """Float64, with rounds without drafts and of smaller depths in between; the bookkeeping after every round."""
    params = SamplingParams(temperature=0.0)
    generation = generate(
        target(), IDS.tolist(), drafter=tree_of(candidates=candidates), horizon=Forced([4, 0, (2, 1, 3), 4, (3,)]),
        sampling=params, max_new_tokens=30,
    )  # fmt: skip
    records = run_in_step(generation)
    assert generation.token_ids == fresh_greedy(target(), IDS.tolist(), 30)[len(IDS) :]
    assert any(record.accepted > 0 for record in records) and any(record.accepted < record.depth for record in records)


@pytest.mark.parametrize(
    ("candidates", "params"),
    [
        pytest.param(Candidates.DETERMINISTIC, PLAIN, marks=pytest.mark.slow),
        (Candidates.WITHOUT_REPLACEMENT, SamplingParams(temperature=0.8)),
    ],
)
@pytest.mark.usefixtures("unchecked_shapes")
def test_answers_have_the_targets_law(candidates: Candidates, params: SamplingParams) -> None:
    """Chi-square at 300 tokens; catches rows of the wrong node and a law of another path.

    Too few to show small biases: that nothing drawn is dropped is seen in the shapes above.
    """
    rows = [TARGET.forward(torch.tensor([token]), TARGET.new_cache()).logits[0] for token in range(SMALL_VOCAB)]
    same = markov_target(torch.stack(rows))
    small = Eagle3Tree(tiny_drafter(same, kind="eagle3"), depth=2, top_k=2, num_nodes=5, candidates=candidates)
    generation = generate(same, [1], drafter=small, horizon=2, sampling=params, max_new_tokens=300, seed=SEED)
    values = p_values(generation, TARGET, params)
    assert min(values.values()) > ALPHA / SMALL_VOCAB, values
    assert 0 < generation.totals.accepted < generation.totals.drafted


def test_it_describes_itself_and_refuses_what_cannot_be() -> None:
    drafter = tree_of()
    assert (drafter.name, drafter.max_horizon) == ("eagle3-tree:4x3:14", 4)
    assert (drafter.captured_layers, drafter.max_positions) == (base().captured_layers, base().max_positions)
    assert [drafter.max_nodes(depth) for depth in (1, 2, 4)] == [3, 12, 14]
    with pytest.raises(ForerunError, match="needs an EAGLE-3 drafter; dspark is of another"):
        Eagle3Tree(tiny_drafter(target()))
    with pytest.raises(ForerunError, match="depth is 5; for this drafter give 1 to 4"):
        Eagle3Tree(base(), depth=5, top_k=2)
    with pytest.raises(ForerunError, match="top_k is 13; for this drafter give 1 to 12"):
        Eagle3Tree(base(), top_k=13)
    with pytest.raises(ForerunError, match="num_nodes is 3; give at least 4"):
        Eagle3Tree(base(), top_k=2, num_nodes=3)
