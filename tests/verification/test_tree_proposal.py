"""A tree cannot be built from what is no tree, or from tokens that its law cannot have produced."""

import pytest
import torch

from forerun.distributions import DenseLaw, Law, PointLaw
from forerun.errors import ForerunError
from forerun.verification import Candidates, TreeProposal

DETERMINISTIC, WITH, WITHOUT = Candidates.DETERMINISTIC, Candidates.WITH_REPLACEMENT, Candidates.WITHOUT_REPLACEMENT
ROOT_ROW, LOWER_ROW = [0.5, 0.5, 0.0], [0.25, 0.25, 0.5]


def tree(
    tokens: list[int], parents: tuple[int, ...], candidates: Candidates = DETERMINISTIC, law: Law | None = None
) -> TreeProposal:
    return TreeProposal(torch.tensor(tokens, dtype=torch.int64), parents, candidates, law)


def rows(*probs: list[float]) -> DenseLaw:
    return DenseLaw(torch.tensor(probs, dtype=torch.float64))


def test_shape_of_a_tree() -> None:
    """Children in order, paths from the root, and the longest of them; levels may be mixed in the numbering."""
    proposal = tree([4, 5, 4, 6, 7], (-1, -1, 0, 2, 1))
    assert proposal.children == {-1: (0, 1), 0: (2,), 2: (3,), 1: (4,)}
    assert proposal.paths == ((4,), (5,), (4, 4), (4, 4, 6), (5, 7))
    assert (len(proposal), proposal.depth) == (5, 3)


def test_no_nodes_are_a_tree() -> None:
    """A round of horizon 0."""
    proposal = tree([], ())
    assert (len(proposal), proposal.depth, proposal.paths, proposal.children) == (0, 0, (), {})


@pytest.mark.parametrize(
    ("tokens", "parents", "message"),
    [
        ([0, 1], (-1,), "2 tokens but 1 parents"),
        ([0, 1], (1, -1), "node 0 has parent 1"),
        ([0, 1], (-1, 1), "node 1 has parent 1"),
        ([0, 1], (-1, -2), "node 1 has parent -2"),
        ([0, -1], (-1, 0), "ids start at 0"),
        ([2, 2], (-1, -1), r"siblings \[0, 1\] have tokens \[2, 2\]"),
    ],
)
def test_what_is_no_tree_is_refused(tokens: list[int], parents: tuple[int, ...], message: str) -> None:
    """Wrong parents would mask the wrong tokens; padding of -1 would gather the last token's probability."""
    with pytest.raises(ForerunError, match=message):
        tree(tokens, parents)


def test_law_and_candidates_belong_together() -> None:
    """A top-k with a law would be tested as if drawn; draws without a law cannot be tested."""
    with pytest.raises(ForerunError, match="candidates are deterministic and the law is given"):
        tree([0], (-1,), DETERMINISTIC, rows(ROOT_ROW))
    with pytest.raises(ForerunError, match="candidates are without replacement and the law is missing"):
        tree([0], (-1,), WITHOUT)


@pytest.mark.parametrize("candidates", [WITH, WITHOUT])
def test_siblings_must_be_drawable(candidates: Candidates) -> None:
    """A law that excludes its own token, or that stands at another node, is not the law that was sampled."""
    with pytest.raises(ForerunError, match="draft token 2 of node 1 has probability 0"):
        tree([0, 2], (-1, -1), candidates, rows(ROOT_ROW, ROOT_ROW))
    with pytest.raises(ForerunError, match="vocabulary of 3"):
        tree([0, 3], (-1, 0), candidates, rows(ROOT_ROW, LOWER_ROW))
    with pytest.raises(ForerunError, match="2 tokens but a law of 1 rows"):
        tree([0, 1], (-1, 0), candidates, rows(ROOT_ROW))
    with pytest.raises(ForerunError, match="siblings have different laws"):
        tree([0, 1], (-1, -1), candidates, rows(ROOT_ROW, LOWER_ROW))


def test_repeated_siblings_need_replacement() -> None:
    """The remaining law of the second one gives it probability 0."""
    repeated = rows(ROOT_ROW, ROOT_ROW)
    assert tree([1, 1], (-1, -1), WITH, repeated).depth == 1
    with pytest.raises(ForerunError, match="only candidates drawn with replacement may repeat"):
        tree([1, 1], (-1, -1), WITHOUT, repeated)


def test_cousins_may_repeat() -> None:
    """The same token under two parents is no repetition."""
    law = stack_of_points([0, 1, 2, 2])
    assert tree([0, 1, 2, 2], (-1, 0, 1, 2), WITH, law).paths[-1] == (0, 1, 2, 2)
    assert tree([0, 1, 2, 2], (-1, -1, 0, 1)).paths[-1] == (1, 2)


def stack_of_points(tokens: list[int]) -> PointLaw:
    return PointLaw(torch.tensor(tokens), 3)
