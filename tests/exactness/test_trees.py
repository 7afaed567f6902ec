"""Whole generations that draft trees have the target's law: rules x candidates x shapes, by enumeration.

The expected law is the plain chain of the target's table. Tolerance: float64 sums of at most some ten thousand
products, each right to about 1e-15.
"""

import pytest

from forerun.distributions import SamplingParams
from forerun.verification import Candidates, TargetOnly, TreeAgreement, TreeRule, TreeTokenLevel
from tests.exactness.enumerate import chain_law, distance
from tests.exactness.tables import Table, plain_model, processed, random_logits
from tests.exactness.trees import Branching, Trees, always_shape, tree_generation_law

TOLERANCE = 1e-12
RED = 1e-3

DETERMINISTIC, WITH, WITHOUT = Candidates.DETERMINISTIC, Candidates.WITH_REPLACEMENT, Candidates.WITHOUT_REPLACEMENT
RULES: dict[str, TreeRule] = {
    "token-level": TreeTokenLevel(),
    "target-only": TargetOnly(),
    "agreement": TreeAgreement(),
}
SHAPES: dict[str, tuple[int, Branching]] = {
    "pair": (3, (2,)),
    "pairs": (2, (2, 2)),
    "three-then-one": (2, (3, 1)),
    "narrow-wide-narrow": (2, (1, 2, 1)),
}
"""Size of the vocabulary, and the tree."""


def tables(vocab_size: int, order: int, params: SamplingParams) -> tuple[Table, Table]:
    return (
        processed(random_logits(21, vocab_size, order), params),
        processed(random_logits(22, vocab_size, order), params),
    )


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
@pytest.mark.parametrize("candidates", Candidates)
@pytest.mark.parametrize(("vocab_size", "branching"), SHAPES.values(), ids=SHAPES.keys())
def test_output_law_is_the_targets(
    rule: TreeRule, candidates: Candidates, vocab_size: int, branching: Branching
) -> None:
    params = SamplingParams()
    target, draft = tables(vocab_size, 1, params)
    law = tree_generation_law(
        Trees(target, draft, candidates), rule, always_shape(*branching), prompt=(1,), num_tokens=4
    )
    expected = chain_law(plain_model(random_logits(21, vocab_size, 1), params), (1,), 4)
    assert sum(law.values()) == pytest.approx(1.0, abs=TOLERANCE)
    assert distance(law, expected) <= TOLERANCE
