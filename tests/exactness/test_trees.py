"""Whole generations that draft trees have the target's law: rules x candidates x shapes, by enumeration.

The expected law is the plain chain of the target's table. Tolerance: float64 sums of at most some ten thousand
products, each right to about 1e-15.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable
from typing import Any

import pytest

from forerun.distributions import DenseLaw, Law, SamplingParams
from forerun.verification import (
    Candidates,
    TargetOnly,
    TreeAgreement,
    TreeRule,
    TreeTokenLevel,
    multi_round,
    residual_law,
    target_only,
)
from forerun.verification.descent import descend
from tests.exactness.enumerate import Tokens, chain_law, distance, marginal
from tests.exactness.mutation import mutated
from tests.exactness.tables import constant, plain_model, processed, random_logits
from tests.exactness.trees import (
    Branching,
    FunctionTreeRule,
    Shapes,
    TreeRound,
    Trees,
    always_shape,
    tree_generation_law,
    verified,
)

TOLERANCE = 1e-12
RED = 1e-3
"""A mutant must miss the law by at least this much."""

PLAIN = SamplingParams()
GREEDY = SamplingParams(temperature=0.0)
DETERMINISTIC, WITH, WITHOUT = Candidates.DETERMINISTIC, Candidates.WITH_REPLACEMENT, Candidates.WITHOUT_REPLACEMENT

RULES: dict[str, TreeRule] = {
    "token-level": TreeTokenLevel(),
    "target-only": TargetOnly(),
    "agreement": TreeAgreement(),
}


def missed_by(
    rule: TreeRule,
    candidates: Candidates,
    shapes: Shapes,
    vocab_size: int,
    *,
    target_params: SamplingParams = PLAIN,
    draft_params: SamplingParams = PLAIN,
    claimed: Candidates | None = None,
    expanded: int | None = None,
    num_tokens: int = 4,
) -> float:
    """How far the law of a generation from random tables is from the target's."""
    target_logits = random_logits(21, vocab_size, 1)
    trees = Trees(
        processed(target_logits, target_params),
        processed(random_logits(22, vocab_size, 1), draft_params),
        candidates,
        claimed,
        expanded,
    )
    law = tree_generation_law(trees, rule, shapes, prompt=(1,), num_tokens=num_tokens)
    assert sum(law.values()) == pytest.approx(1.0, abs=1e-9)
    return distance(law, chain_law(plain_model(target_logits, target_params), (1,), num_tokens))


SHAPES: dict[str, tuple[int, Branching]] = {"pair": (3, (2,)), "pair-then-one": (2, (2, 1))}
"""Size of the vocabulary, and the tree."""
LARGER_SHAPES: dict[str, tuple[int, Branching]] = {
    "three-then-one": (2, (3, 1)),
    "narrow-wide-narrow": (2, (1, 2, 1)),
    "pairs": (2, (2, 2)),
    "three-tokens": (3, (2, 1)),
}


@pytest.mark.parametrize("candidates", Candidates)
@pytest.mark.parametrize(("vocab_size", "branching"), SHAPES.values(), ids=SHAPES.keys())
def test_speculative_sampling_has_the_targets_law(
    candidates: Candidates, vocab_size: int, branching: Branching
) -> None:
    """Each kind of candidates with its own test, over several rounds whose laws depend on the context."""
    assert missed_by(TreeTokenLevel(), candidates, always_shape(*branching), vocab_size) <= TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("candidates", Candidates)
@pytest.mark.parametrize(("vocab_size", "branching"), LARGER_SHAPES.values(), ids=LARGER_SHAPES.keys())
def test_larger_trees_have_the_targets_law(candidates: Candidates, vocab_size: int, branching: Branching) -> None:
    """Groups of different sizes on three levels, and two groups on one."""
    assert missed_by(TreeTokenLevel(), candidates, always_shape(*branching), vocab_size) <= TOLERANCE


@pytest.mark.parametrize("candidates", [pytest.param(WITH, marks=pytest.mark.slow), WITHOUT])
def test_which_nodes_get_children_may_depend_on_what_was_drawn(candidates: Candidates) -> None:
    """EAGLE's dynamic tree of drawn siblings: the most probable node alone goes on, which its cousins decide, too."""
    assert missed_by(TreeTokenLevel(), candidates, always_shape(2, 1), 3, expanded=1, num_tokens=3) <= TOLERANCE


@pytest.mark.parametrize("rule", [TargetOnly(), TreeAgreement()], ids=["target-only", "agreement"])
@pytest.mark.parametrize("candidates", Candidates)
def test_rules_without_a_draft_law_take_any_candidates(rule: TreeRule, candidates: Candidates) -> None:
    """Exact given the tree, so for sampled trees too, repeated siblings included."""
    assert missed_by(rule, candidates, always_shape(2), 2) <= TOLERANCE


def _after_feedback(_: Tokens, told: Hashable) -> dict[Branching, float]:
    """A coin at first; then by what verification said about children that may have been discarded."""
    if not isinstance(told, float):
        return {(): 0.25, (2,): 0.75}
    return {(2, 1): 1.0} if told > 0.8 else {(1,): 0.5, (): 0.5}


def _shown(_: Hashable, told: TreeRound) -> float:
    return float(told.outcome.accept_probabilities.sum() + told.outcome.overlaps.sum())


@pytest.mark.parametrize("candidates", Candidates)
def test_shapes_may_depend_on_past_rounds(candidates: Candidates) -> None:
    """Depth and width chosen before drafting from all that past rounds have shown, rounds without drafts in between."""
    assert missed_by(TreeTokenLevel(), candidates, Shapes(_after_feedback, remember=_shown), 2) <= TOLERANCE


PROCESSING: dict[str, tuple[SamplingParams, SamplingParams]] = {
    "greedy-target": (GREEDY, PLAIN),
    "greedy-both": (GREEDY, GREEDY),
    "truncated-draft": (PLAIN, SamplingParams(top_k=2)),
    "truncated-target": (SamplingParams(top_k=2), PLAIN),
}


@pytest.mark.parametrize("candidates", Candidates)
@pytest.mark.parametrize(("target_params", "draft_params"), PROCESSING.values(), ids=PROCESSING.keys())
def test_laws_with_few_tokens(
    candidates: Candidates, target_params: SamplingParams, draft_params: SamplingParams
) -> None:
    """One-hot rows, excluded tokens, and drafts without replacement that run dry after two of three siblings."""
    missed = missed_by(
        TreeTokenLevel(),
        candidates,
        always_shape(3),
        3,
        target_params=target_params,
        draft_params=draft_params,
        num_tokens=3,
    )
    assert missed <= TOLERANCE


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
@pytest.mark.parametrize("candidates", Candidates)
def test_feedback_predicts_how_deep_the_path_goes(rule: TreeRule, candidates: Candidates) -> None:
    """Both kinds of feedback, summed over the rounds in which a depth is tried, have its reach as expectation.

    Catches feedback that looks at the accept bits, at elders only, or averages over the wrong law.
    """
    trees = Trees(
        processed(random_logits(23, 2, 1), PLAIN), processed(random_logits(24, 2, 1), PLAIN), candidates, None
    )
    reached: defaultdict[int, float] = defaultdict(float)
    predicted: defaultdict[int, float] = defaultdict(float)
    averaged: defaultdict[int, float] = defaultdict(float)
    weighted: defaultdict[int, float] = defaultdict(float)
    for proposal, outcome, weight in verified(trees, rule, (2, 1), (0,)):
        for depth in range(proposal.depth):
            reached[depth] += weight * (len(outcome.path) > depth)
        for depth, probability in enumerate(outcome.accept_probabilities.tolist()):
            predicted[depth] += weight * probability
            averaged[depth] += weight * float(outcome.overlaps[depth])
            weighted[depth] += weight * float(outcome.prefix_weights[depth])
    assert len(reached) == 2 and reached[1] > 0.05
    assert predicted == pytest.approx(reached, abs=TOLERANCE)
    assert averaged == pytest.approx(reached, abs=TOLERANCE)
    assert weighted == pytest.approx(reached, abs=TOLERANCE)


def test_greedy_candidates_under_the_sampled_test_are_biased() -> None:
    """min(1, target / draft) for a token that is certain: P(0) = 6/7 instead of 3/5."""

    def first_token(claimed: Candidates | None) -> list[float]:
        trees = Trees(constant([0.6, 0.4]), constant([0.7, 0.3]), DETERMINISTIC, claimed)
        law = tree_generation_law(trees, TreeTokenLevel(), always_shape(1), prompt=(), num_tokens=1)
        return marginal(law, 0, 2)

    assert first_token(None) == pytest.approx([3 / 5, 2 / 5], abs=TOLERANCE)
    assert first_token(WITH) == pytest.approx([6 / 7, 1 / 7], abs=TOLERANCE)
    assert first_token(WITHOUT) == pytest.approx([6 / 7, 1 / 7], abs=TOLERANCE)


@pytest.mark.parametrize(
    ("drawn", "claimed"), [(WITHOUT, WITH), (DETERMINISTIC, WITHOUT)], ids=["as-independent", "as-drawn"]
)
def test_another_way_of_drawing_is_red(drawn: Candidates, claimed: Candidates) -> None:
    """Siblings without replacement verified as independent draws, and a top-k verified as drawn at all."""
    assert missed_by(TreeTokenLevel(), drawn, always_shape(2), 3, claimed=claimed) > RED


def _not_renormalised(law: Law, token_ids: Any) -> Law:
    return DenseLaw._trusted(law.dense().index_fill(-1, token_ids, 0.0))


SAME = ("descend(", "descend(")
ROW = "target.rows(node + 1, node + 2)"
MUTANTS: dict[str, tuple[Callable[..., Any], Candidates, tuple[str, str], dict[str, object]]] = {
    "draft-keeps-tried-tokens": (multi_round, WITHOUT, ("if without_replacement", "if False"), {}),
    "draft-not-renormalised": (multi_round, WITHOUT, SAME, {"excluding": _not_renormalised}),
    "target-not-renormalised": (
        multi_round,
        WITH,
        SAME,
        {"residual_law": mutated(residual_law, "DenseLaw(excess / total)", "DenseLaw._trusted(excess)")},
    ),
    "forgets-the-draft-probability": (multi_round, WITH, ("number * draft_prob", "number"), {}),
    "takes-the-last-that-passes": (multi_round, WITH, ("accepted is None and number", "number"), {}),
    "one-number-for-all": (
        multi_round,
        WITH,
        ("siblings.uniforms.tolist()", "siblings.uniforms.mul(0).add(siblings.uniforms[0]).tolist()"),
        {},
    ),
    "correction-from-the-target": (
        multi_round,
        WITH,
        ("residual_law(target_left, draft_left) if accepted is None", "here if accepted is None"),
        {},
    ),
    "never-renormalises": (target_only, DETERMINISTIC, ("mass_left < prob", "1.0 < prob"), {}),
    "keeps-rejected-tokens": (target_only, DETERMINISTIC, ("excluding(here, siblings.token_ids)", "here"), {}),
    "excludes-the-first-only": (target_only, DETERMINISTIC, ("siblings.token_ids)\n", "siblings.token_ids[:1])\n"), {}),
}


def one_pair_misses(rule: TreeRule, candidates: Candidates) -> float:
    """How far the first token after two siblings is off, where two tokens are left over for the second."""
    target_probs = [0.2, 0.45, 0.35]
    trees = Trees(constant(target_probs), constant([0.6, 0.1, 0.3]), candidates)
    law = tree_generation_law(trees, rule, always_shape(2), prompt=(), num_tokens=1)
    return distance(law, chain_law(lambda _: target_probs, (), 1))


@pytest.mark.parametrize(("function", "candidates", "change", "names"), MUTANTS.values(), ids=MUTANTS.keys())
def test_broken_tests_of_siblings_are_red(
    function: Callable[..., Any], candidates: Candidates, change: tuple[str, str], names: dict[str, object]
) -> None:
    """Forgotten and misplaced steps of the equations."""
    rule = FunctionTreeRule(mutated(function, change[0], change[1], **names))
    assert one_pair_misses(rule, candidates) > RED


@pytest.mark.parametrize(
    ("function", "candidates"), [(multi_round, WITH), (multi_round, WITHOUT), (target_only, DETERMINISTIC)]
)
def test_unbroken_tests_of_siblings_are_not(function: Callable[..., Any], candidates: Candidates) -> None:
    """Without this the red tests above could be red for another reason."""
    rule = FunctionTreeRule(mutated(function, *SAME))
    assert one_pair_misses(rule, candidates) <= TOLERANCE


@pytest.mark.parametrize(
    "rows",
    ["target.rows(0, 1)", "target.rows(max(node, 0), max(node, 0) + 1)", "target.rows(len(path), len(path) + 1)"],
)
def test_wrong_rows_of_the_target_are_red(rows: str) -> None:
    """The law of the root, of the node before, or of the depth, in place of the node's own."""
    rule = FunctionTreeRule(mutated(target_only, *SAME, descend=mutated(descend, ROW, rows)))
    assert missed_by(rule, DETERMINISTIC, always_shape(2, 1), 3, num_tokens=3) > RED
