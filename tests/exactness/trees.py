"""The exact law of a generation that drafts trees, by enumeration of its random numbers.

As in ``enumerate``, nothing is derived twice: siblings come from ``Law.sample``, the path from ``TreeRule.verify``, the
next token from ``TreeOutcome.emission``. Drawing without replacement is a small loop of this file over plain lists.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import final

import torch
from jaxtyping import Float64
from torch import Tensor

from forerun.distributions import DenseLaw, Law, stack_laws
from forerun.verification import Candidates, TargetOnly, TreeAgreement, TreeOutcome, TreeProposal, TreeRule, Truncation
from tests.exactness.enumerate import FINE, Model, Tokens, cells, draws

Branching = tuple[int, ...]
"""Children of every node, depth by depth."""


Nodes = tuple[tuple[int, int], ...]
"""(parent, token) of each node."""


@dataclass(frozen=True)
class TreeRound:
    """What a policy is told after a round; accept probabilities and overlaps of all depths that were tried."""

    context: Tokens
    branching: Branching
    outcome: TreeOutcome


def _forget(_: Hashable, __: TreeRound) -> Hashable:
    return None


@dataclass(frozen=True)
class Shapes:
    """How the shapes of trees come about.

    Attributes:
        policy: Probabilities of the shapes, from the context and from what is remembered.
        memory: What the policy knows in the first round.
        remember: How it learns from a round. Nothing by default: far fewer cases are then to be told apart.
        cut: Illegal for drawn siblings, here for the negative control: a smaller shape, after a look at the tree.
    """

    policy: Callable[[Tokens, Hashable], Mapping[Branching, float]]
    memory: Hashable = None
    remember: Callable[[Hashable, TreeRound], Hashable] = _forget
    cut: Callable[[Tokens, Nodes], Branching] | None = None


def always_shape(*branching: int) -> Shapes:
    """The same tree in every round."""
    return Shapes(lambda _, __: {branching: 1.0})


@dataclass(frozen=True)
class Trees:
    """How trees are drawn, and what is said about it.

    Attributes:
        target: The target's law.
        draft: The law that siblings are drawn from, or whose most probable tokens are taken.
        candidates: How siblings are drawn.
        claimed: How the proposal says that they were drawn; another way is a bug to be caught.
        expanded: So many nodes of a level get children, those whose paths are the most probable; ``None`` for all.
    """

    target: Model
    draft: Model
    candidates: Candidates
    claimed: Candidates | None = None
    expanded: int | None = None


def tree_generation_law(
    trees: Trees, rule: TreeRule, shapes: Shapes, *, prompt: Tokens, num_tokens: int
) -> dict[Tokens, float]:
    """Joint law of the first ``num_tokens`` output tokens."""
    end = len(prompt) + num_tokens

    @cache
    def rest(context: Tokens, memory: Hashable) -> dict[Tokens, float]:
        if len(context) >= end:
            return {context[len(prompt) : end]: 1.0}
        law: defaultdict[Tokens, float] = defaultdict(float)
        for branching, shape_weight in shapes.policy(context, memory).items():
            for proposal, outcome, weight in verified(trees, rule, branching, context, shapes.cut):
                accepted = proposal.paths[outcome.path[-1]] if outcome.path else ()
                over = len(context) + len(accepted) + 1 >= end  # nothing is asked any more
                remembered = None if over else shapes.remember(memory, TreeRound(context, branching, outcome))
                for token, token_weight in draws(outcome.emission, FINE):
                    after = rest((*context, *accepted, token), remembered)
                    joint = shape_weight * weight * token_weight
                    for output, tail_weight in after.items():
                        law[output] += joint * tail_weight
        return law

    return rest(prompt, shapes.memory)


_OUTCOMES: dict[Hashable, list[tuple[TreeProposal, TreeOutcome, float]]] = {}


def verified(
    trees: Trees,
    rule: TreeRule,
    branching: Branching,
    context: Tokens,
    cut: Callable[[Tokens, Nodes], Branching] | None = None,
) -> Iterator[tuple[TreeProposal, TreeOutcome, float]]:
    """Every tree that can be drawn after the context, with every outcome, and the joint probability."""
    for nodes, tree_weight in drawn(trees, branching, context):
        if cut is not None:
            nodes = pruned(nodes, cut(context, nodes))
        paths = tuple(path_to(nodes, node) for node in range(len(nodes)))
        target = tuple(trees.target(context + path) for path in ((), *paths))
        draft = tuple(trees.draft(context + path[:-1]) for path in paths)
        key = (rule, trees.claimed or trees.candidates, nodes, target, draft)
        if key not in _OUTCOMES:
            proposal = proposal_of(nodes, trees.claimed or trees.candidates, draft)
            _OUTCOMES[key] = [(proposal, *outcome) for outcome in outcomes(rule, target, draft, proposal)]
        for proposal, outcome, weight in _OUTCOMES[key]:
            yield proposal, outcome, tree_weight * weight


def pruned(nodes: Nodes, branching: Branching) -> Nodes:
    """The eldest children of each node, as many as a smaller shape has."""
    kept: dict[int, int] = {-1: -1}
    found: list[tuple[int, int]] = []
    for node, (parent, token) in enumerate(nodes):
        depth = len(path_to(nodes, node))
        elders = sum(other == parent for other, _ in nodes[:node])
        if parent in kept and depth <= len(branching) and elders < branching[depth - 1]:
            kept[node] = len(found)
            found.append((kept[parent], token))
    return tuple(found)


def drawn(trees: Trees, branching: Branching, context: Tokens) -> Iterator[tuple[Nodes, float]]:
    """Trees in the order in which a drafter grows them: depth by depth, sibling after sibling."""

    def grow(nodes: Nodes, frontier: tuple[int, ...], depth: int) -> Iterator[tuple[Nodes, float]]:
        if depth == len(branching):
            yield nodes, 1.0
            return

        def fill(nodes: Nodes, place: int) -> Iterator[tuple[Nodes, float]]:
            if place == len(frontier):
                grown = [node for node, (parent, _) in enumerate(nodes) if parent in frontier]
                if trees.expanded is not None:
                    best = sorted(grown, key=lambda node: -path_prob(trees.draft, context, path_to(nodes, node)))
                    grown = sorted(best[: trees.expanded])
                yield from grow(nodes, tuple(grown), depth + 1)
                return
            parent = frontier[place]
            law = trees.draft(context + path_to(nodes, parent))
            for tokens, weight in groups(law, trees.candidates, branching[depth]):
                added = (*nodes, *((parent, token) for token in tokens))
                for result, later_weight in fill(added, place + 1):
                    yield result, weight * later_weight

        yield from fill(nodes, 0)

    yield from grow((), (-1,), 0)


def path_prob(draft: Model, context: Tokens, path: Tokens) -> float:
    """How likely the draft law makes a path."""
    laws = [draft(context + path[:place]) for place in range(len(path))]
    return math.prod(float(law.dense()[0, token]) for law, token in zip(laws, path, strict=True))


def path_to(nodes: Nodes, node: int) -> Tokens:
    """Tokens from the root to a node."""
    if node == -1:
        return ()
    parent, token = nodes[node]
    return (*path_to(nodes, parent), token)


@cache
def groups(law: Law, candidates: Candidates, count: int) -> list[tuple[Tokens, float]]:
    """Sibling groups and their probabilities; fewer siblings where a law without replacement runs dry."""
    probs = law.dense()[0].tolist()
    if candidates is Candidates.DETERMINISTIC:
        ranked = sorted(range(len(probs)), key=lambda token: (-probs[token], token))
        return [(tuple(ranked[:count]), 1.0)]
    if count == 0:
        return [((), 1.0)]
    found: list[tuple[Tokens, float]] = []
    for token, weight in draws(law, FINE):
        left = law
        if candidates is Candidates.WITHOUT_REPLACEMENT:
            others = [0.0 if other == token else prob for other, prob in enumerate(probs)]
            if sum(others) == 0.0:
                found.append(((token,), weight))
                continue
            left = normalised(tuple(others))
        found += [((token, *rest), weight * share) for rest, share in groups(left, candidates, count - 1)]
    return found


@cache
def normalised(weights: tuple[float, ...]) -> Law:
    """One object for equal laws, so that caches find it."""
    return DenseLaw(torch.tensor([[weight / math.fsum(weights) for weight in weights]], dtype=torch.float64))


def proposal_of(nodes: Nodes, claimed: Candidates, draft: tuple[Law, ...]) -> TreeProposal:
    """The proposal that a drafter hands over."""
    sampled = claimed is not Candidates.DETERMINISTIC and nodes
    return TreeProposal(
        token_ids=torch.tensor([token for _, token in nodes], dtype=torch.int64),
        parents=tuple(parent for parent, _ in nodes),
        candidates=claimed if sampled else Candidates.DETERMINISTIC,
        law=stack_laws(draft) if sampled else None,
    )


_EDGES: dict[Hashable, list[set[int]]] = {}
"""Where the verdict on a group of siblings changes, found once; later only hints, so they cannot make a law wrong."""


def acceptances(candidates: Candidates, target: list[float], draft: list[float], tokens: Tokens) -> list[float]:
    """Probability that each sibling is accepted once its elders are rejected, in plain Python from the definition.

    For deterministic candidates the target's own probability of the token among what is left of its law.
    """
    found = []
    for token in tokens:
        if candidates is Candidates.DETERMINISTIC:
            found.append(target[token])
            left = [0.0 if other == token else prob for other, prob in enumerate(target)]
        else:
            found.append(min(1.0, target[token] / draft[token]))
            left = [max(0.0, wanted - offered) for wanted, offered in zip(target, draft, strict=True)]
        target = [prob / sum(left) for prob in left] if sum(left) > 0.0 else target
        if candidates is Candidates.WITHOUT_REPLACEMENT:
            left = [0.0 if other == token else prob for other, prob in enumerate(draft)]
            draft = [prob / sum(left) for prob in left] if sum(left) > 0.0 else draft
    return found


def likely_edges(rule: TreeRule, candidates: Candidates, target: Law, draft: Law, tokens: Tokens) -> list[set[int]]:
    """Where the numbers of siblings should decide differently."""
    probs = target.dense()[0].tolist()
    if isinstance(rule, TreeAgreement):
        ends = [sum(probs[: token + below]) for token in tokens for below in (0, 1)]
        return [{math.ceil(end * FINE) for end in ends}, *(set() for _ in tokens[1:])]
    if isinstance(rule, TargetOnly):
        candidates = Candidates.DETERMINISTIC
    edges = acceptances(candidates, probs, draft.dense()[0].tolist(), tokens)
    return [{math.ceil(edge * FINE)} for edge in edges]


def outcomes(
    rule: TreeRule, target: tuple[Law, ...], draft: tuple[Law, ...], proposal: TreeProposal
) -> Iterator[tuple[TreeOutcome, float]]:
    """What ``rule.verify`` says on the fine grid, with the share of numbers that make it say so.

    Numbers are gone through group by group, from the root down the paths that are taken. That numbers of other groups
    decide nothing is not taken for granted: each outcome is seen with all of them at either end of the grid.
    """
    target_law = stack_laws(target)

    @cache
    def outcome_at(point: Tokens) -> TreeOutcome:
        return rule.verify(target_law, proposal, uniforms=torch.tensor(point, dtype=torch.float64) / FINE)

    @cache
    def signature(point: Tokens) -> Hashable:
        return outcome_at(point).path, tuple(outcome_at(point).emission.dense()[0].tolist())

    def below(node: int, point: Tokens, settled: frozenset[int]) -> Iterator[tuple[TreeOutcome, float]]:
        siblings = proposal.children.get(node)
        if siblings is None:
            yield ending(point, settled), 1.0
            return

        def child_at(point: Tokens) -> int | None:
            return next((child for child in outcome_at(point).path if child in siblings), None)

        def placed(numbers: Tokens) -> Tokens:
            values = dict(zip(siblings, numbers, strict=True))
            return tuple(values.get(place, number) for place, number in enumerate(point))

        def observe(numbers: Tokens) -> Hashable:
            child = child_at(placed(numbers))
            return signature(placed(numbers)) if child is None else child

        tokens = tuple(proposal.paths[child][-1] for child in siblings)
        case = (rule, proposal.candidates, target[node + 1], draft[siblings[0]], tokens)
        if case not in _EDGES:
            _EDGES[case] = likely_edges(*case)
        hints = _EDGES[case]
        settled |= frozenset(siblings)
        for numbers, weight in cells(observe, hints, FINE):
            for edges, number in zip(hints, numbers, strict=True):
                edges.add(number)
            child = child_at(placed(numbers))
            if child is not None:
                for outcome, later_weight in below(child, placed(numbers), settled):
                    yield outcome, weight * later_weight
                continue
            yield ending(placed(numbers), settled), weight

    def ending(point: Tokens, settled: frozenset[int]) -> TreeOutcome:
        opposite = tuple(number if place in settled else FINE - 1 for place, number in enumerate(point))
        assert signature(opposite) == signature(point), "numbers beside the path decided"
        return outcome_at(point)

    yield from below(-1, (0,) * len(proposal), frozenset())


@final
class FunctionTreeRule(TreeRule):
    """Any function with the signature of ``target_only`` as a rule."""

    def __init__(self, function: Callable[..., TreeOutcome]) -> None:
        """Stores the function."""
        self._function = function

    @property
    def name(self) -> str:
        """Not for records."""
        return "mutant"

    @property
    def exact(self) -> bool:
        """That is what the tests find out."""
        return False

    @property
    def needs_draft_law(self) -> bool:
        """Unknown, so yes."""
        return True

    @property
    def truncation(self) -> Truncation:
        """The stricter one."""
        return Truncation.BEFORE_DRAWING

    def verify(self, target: Law, proposal: TreeProposal, *, uniforms: Float64[Tensor, " nodes"]) -> TreeOutcome:
        """Calls the function."""
        return self._function(target, proposal, uniforms=uniforms)
