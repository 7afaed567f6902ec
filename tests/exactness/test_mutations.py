"""The exactness check goes red when the code is broken. Each test states the bug it puts in."""

import pytest

from forerun.distributions import DenseLaw, SamplingParams, processing
from forerun.distributions import law as laws
from forerun.verification import (
    Agreement,
    BlockVerification,
    Rule,
    TokenLevel,
    agreement,
    block_verification,
    residual_law,
    token_level,
)
from tests.exactness.enumerate import FINE, Horizons, Tokens, chain_law, distance, generation_law
from tests.exactness.mutation import FunctionRule, mutated
from tests.exactness.policies import fixed
from tests.exactness.tables import by_last_token, constant, plain_model, processed, random_logits

TOLERANCE = 1e-12
RED = 1e-3
"""A mutant must miss the law by at least this much."""

PROMPT: Tokens = (1,)
NUM_TOKENS = 4

# Draft probabilities are powers of 1/2 and target probabilities multiples of 1/16, so every acceptance ratio is a
# multiple of 1/8 and the coarse grid decides each comparison without rounding. Row 0 of the target excludes token 0.
DYADIC_TARGET = [[0.0, 0.5, 0.5], [0.25, 0.25, 0.5], [0.0625, 0.4375, 0.5]]
DYADIC_DRAFT = [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.5, 0.25, 0.25]]
COARSE = 16


def dyadic_distance(rule: Rule, horizons: Horizons, grid: int) -> float:
    """How far the law of a dyadic generation is from the target's."""
    law = generation_law(
        target=by_last_token(DYADIC_TARGET),
        draft=by_last_token(DYADIC_DRAFT),
        rule=rule,
        horizons=horizons,
        prompt=PROMPT,
        num_tokens=NUM_TOKENS,
        grid=grid,
    )
    return distance(law, chain_law(lambda context: DYADIC_TARGET[context[-1]], PROMPT, NUM_TOKENS))


@pytest.mark.parametrize("grid", [COARSE, FINE], ids=["coarse", "fine"])
@pytest.mark.parametrize("horizon", [1, 2, 3])
def test_unmutated_dyadic_generation_is_exact(horizon: int, grid: int) -> None:
    """Without this the red tests below could be red for another reason."""
    assert dyadic_distance(TokenLevel(), fixed(horizon), grid) <= 1e-15


def test_less_or_equal_is_red() -> None:
    """`<=` accepts at u = draft ratio, and a token that the target excludes at u = 0 (sglang issue 35771)."""
    mutant = mutated(token_level, "* draft_probs < target_probs", "* draft_probs <= target_probs")
    assert dyadic_distance(FunctionRule(mutant), fixed(2), COARSE) > RED


TOKEN_LEVEL_MUTANTS: dict[str, tuple[str, str]] = {
    "residual-of-next-target-row": (
        "residual_law(target.rows(accepted, accepted + 1)",
        "residual_law(target.rows(accepted + 1, accepted + 2)",
    ),
    "residual-of-first-row": (
        "residual_law(target.rows(accepted, accepted + 1), proposal.law.rows(accepted, accepted + 1))",
        "residual_law(target.rows(0, 1), proposal.law.rows(0, 1))",
    ),
    "residual-against-first-draft-row": (
        "proposal.law.rows(accepted, accepted + 1)",
        "proposal.law.rows(0, 1)",
    ),
    "correction-from-target": (
        "residual_law(target.rows(accepted, accepted + 1), proposal.law.rows(accepted, accepted + 1))",
        "target.rows(accepted, accepted + 1)",
    ),
    "bonus-from-last-drafted-row": ("target.rows(horizon, horizon + 1)", "target.rows(horizon - 1, horizon)"),
    "accepts-after-a-rejection": (".cumprod(0)", ""),
    "forgets-the-draft-probability": ("* draft_probs <", "<"),
    "forgets-the-last-token": ("if accepted == horizon", "if accepted >= horizon - 1"),
}


@pytest.mark.parametrize(("old", "new"), TOKEN_LEVEL_MUTANTS.values(), ids=TOKEN_LEVEL_MUTANTS.keys())
def test_broken_token_level_is_red(old: str, new: str) -> None:
    """Wrong rows and forgotten steps of the rule."""
    mutant = mutated(token_level, old, new)
    assert dyadic_distance(FunctionRule(mutant), fixed(2), COARSE) > RED


BLOCK_MUTANTS: dict[str, tuple[str, str]] = {
    "stops-at-the-first-failure": (
        "        if passes:\n            accepted = i",
        "        if not passes:\n            break\n        accepted = i",
    ),
    "token-level-residual": ("target_weight=weights[accepted]", "target_weight=1.0"),
    "residual-weight-of-the-next-prefix": ("target_weight=weights[accepted]", "target_weight=weights[accepted + 1]"),
    "last-position-tested-like-the-others": (
        "        if i == horizon:\n            passes = number < weight\n"
        "        else:\n            mass = float(uncovered[i])",
        "        if True:\n            mass = float(uncovered[min(i, horizon - 1)])",
    ),
    "all-positions-tested-like-the-last": ("if i == horizon:", "if True:"),
    "mass-of-the-token-itself": ("uncovered[i]", "uncovered[i - 1]"),
    "forgets-the-prefix": ("weights[-1] * target_prob", "target_prob"),
    "weights-above-one": ("min(1.0, weights[-1] * target_prob / draft_prob)", "weights[-1] * target_prob / draft_prob"),
    "forgets-the-rest-of-the-denominator": ("(mass + 1.0 - weight)", "mass"),
    "bonus-from-the-first-row": ("emission = row", "emission = target.rows(0, 1)"),
}


# After token 1 the first draft token often leaves a prefix weight of 2/3, and behind it two tokens are left to cover,
# in other proportions for weight 2/3 than for weight 1.
BLOCK_TARGET = [[0.2, 0.5, 0.3], [0.4, 0.3, 0.3], [0.3, 0.2, 0.5]]
BLOCK_DRAFT = [[0.8, 0.1, 0.1], [0.6, 0.2, 0.2], [0.1, 0.3, 0.6]]


def block_distance(rule: Rule) -> float:
    """How far three tokens are from the target's law."""
    law = generation_law(
        target=by_last_token(BLOCK_TARGET),
        draft=by_last_token(BLOCK_DRAFT),
        rule=rule,
        horizons=fixed(2),
        prompt=PROMPT,
        num_tokens=3,
    )
    return distance(law, chain_law(lambda context: BLOCK_TARGET[context[-1]], PROMPT, 3))


@pytest.mark.parametrize(("old", "new"), BLOCK_MUTANTS.values(), ids=BLOCK_MUTANTS.keys())
def test_broken_block_verification_is_red(old: str, new: str) -> None:
    """The errors seen in serving engines first: an early end of the search, and the residual of the other rule."""
    mutant = mutated(block_verification, old, new)
    assert block_distance(BlockVerification()) <= TOLERANCE
    assert block_distance(FunctionRule(mutant)) > RED


@pytest.mark.parametrize("old", ["number < weight", "number * (mass + 1.0 - weight) < mass"])
def test_less_or_equal_in_block_verification_is_red(old: str) -> None:
    """A token that the target excludes must not pass at u = 0, at the last position or before it.

    All prefix weights here are 0 or 1, so that a grid of two points decides without rounding.
    """
    target_rows = [[0.0, 1.0], [0.5, 0.5]]

    def missed_by(rule: Rule) -> float:
        law = generation_law(
            target=by_last_token(target_rows),
            draft=constant([0.5, 0.5]),
            rule=rule,
            horizons=fixed(2),
            prompt=(0,),
            num_tokens=3,
            grid=2,
        )
        return distance(law, chain_law(lambda context: target_rows[context[-1]], (0,), 3))

    assert missed_by(BlockVerification()) <= 1e-15
    assert missed_by(FunctionRule(mutated(block_verification, old, old.replace("<", "<=")))) > RED


AGREEMENT_MUTANTS: dict[str, tuple[str, str]] = {
    "corrects-with-the-draft-token": ("PointLaw(drawn[accepted", "PointLaw(proposal.token_ids[accepted"),
    "corrects-from-the-target-afresh": (
        "PointLaw(drawn[accepted : accepted + 1], target.vocab_size)",
        "target.rows(accepted, accepted + 1)",
    ),
    "keeps-what-agrees-anywhere": (".cumprod(0)", ""),
}


@pytest.mark.parametrize(("old", "new"), AGREEMENT_MUTANTS.values(), ids=AGREEMENT_MUTANTS.keys())
def test_broken_agreement_is_red(old: str, new: str) -> None:
    """A second draw after a disagreement gives the draft's token another chance."""
    mutant = mutated(agreement, old, new)
    assert dyadic_distance(Agreement(), fixed(2), COARSE) <= 1e-15
    assert dyadic_distance(FunctionRule(mutant), fixed(2), COARSE) > RED


RESIDUAL_MUTANTS: dict[str, tuple[str, str]] = {
    "sign-reversed": ("target_weight * target.dense() - draft.dense()", "draft.dense() - target.dense()"),
    "absolute": (".clamp(min=0.0)", ".abs()"),
}


@pytest.mark.parametrize(("old", "new"), RESIDUAL_MUTANTS.values(), ids=RESIDUAL_MUTANTS.keys())
def test_broken_residual_is_red(old: str, new: str) -> None:
    """A reader of the other naming convention reverses the sign (cautionary tale 5.3)."""
    mutant = mutated(token_level, "int(", "int(", residual_law=mutated(residual_law, old, new))
    assert dyadic_distance(FunctionRule(mutant), fixed(2), COARSE) > RED


def logits_distance(horizons: Horizons, params: SamplingParams) -> float:
    """How far a generation from random logits is from the law that plain Python computes from them."""
    logits = random_logits(11, 3, 1)
    law = generation_law(
        target=processed(logits, params),
        draft=processed(random_logits(12, 3, 1), params),
        rule=TokenLevel(),
        horizons=horizons,
        prompt=PROMPT,
        num_tokens=NUM_TOKENS,
    )
    return distance(law, chain_law(plain_model(logits, params), PROMPT, NUM_TOKENS))


SAMPLE_MUTANTS: dict[str, tuple[object, str, str, str]] = {
    "finds-the-token-before": (DenseLaw, "sample", "[:, 0]", "[:, 0].sub(1).clamp(min=0)"),
    "float32-running-sum": (laws, "running_sums", ".cumsum(-1)", ".float().cumsum(-1).double()"),
}


@pytest.mark.parametrize(("place", "name", "old", "new"), SAMPLE_MUTANTS.values(), ids=SAMPLE_MUTANTS.keys())
def test_broken_sampling_is_red(place: object, name: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Off by one in the inverse of the cumulative law, and a sum too coarse for small probabilities."""
    assert logits_distance(fixed(2), SamplingParams()) <= TOLERANCE
    monkeypatch.setattr(place, name, mutated(vars(place)[name], old, new))
    assert logits_distance(fixed(2), SamplingParams()) > 10 * TOLERANCE


PROCESSING_MUTANTS: dict[str, tuple[SamplingParams, str, str, str]] = {
    "temperature-multiplies": (SamplingParams(temperature=0.5), "_tempered", "scaled / params", "scaled * params"),
    "top-k-drops-the-last": (SamplingParams(top_k=2), "_truncated", "scaled < kth_largest", "scaled <= kth_largest"),
    "min-p-of-the-square": (SamplingParams(min_p=0.2), "_truncated", "log(params.min_p)", "log(params.min_p) / 2"),
    "top-p-never": (SamplingParams(top_p=0.6), "_truncated", "params.top_p < 1.0", "params.top_p < 0.0"),
    "min-p-never": (SamplingParams(min_p=0.4), "_truncated", "params.min_p > 0.0", "params.min_p > 1.0"),
}


@pytest.mark.parametrize(("params", "name", "old", "new"), PROCESSING_MUTANTS.values(), ids=PROCESSING_MUTANTS.keys())
def test_broken_processing_is_red(
    params: SamplingParams, name: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A processing error shared by target and draft leaves a consistent, wrong law."""
    assert logits_distance(fixed(1), params) <= TOLERANCE
    monkeypatch.setattr(processing, name, mutated(vars(processing)[name], old, new))
    assert logits_distance(fixed(1), params) > RED


CLAIMS: dict[str, tuple[SamplingParams, SamplingParams]] = {
    "drawn-truncated-tested-raw": (SamplingParams(top_k=2), SamplingParams()),
    "drawn-cool-tested-raw": (SamplingParams(temperature=0.5), SamplingParams()),
    "drawn-greedy-tested-raw": (SamplingParams(temperature=0.0), SamplingParams()),
    "drawn-nucleus-tested-hot": (SamplingParams(top_p=0.7), SamplingParams(temperature=2.0)),
}


@pytest.mark.parametrize(("drawn", "claimed"), CLAIMS.values(), ids=CLAIMS.keys())
@pytest.mark.parametrize("truthful", [True, False], ids=["truthful", "mutant"])
def test_law_tested_is_not_the_law_sampled(drawn: SamplingParams, claimed: SamplingParams, truthful: bool) -> None:
    """A drafter that samples the processed law and returns the raw one (transformers 47932, litgpt at T = 0)."""
    target_logits, draft_logits = random_logits(13, 3, 1), random_logits(14, 3, 1)
    law = generation_law(
        target=processed(target_logits, SamplingParams()),
        draft=processed(draft_logits, drawn),
        claimed=processed(draft_logits, drawn if truthful else claimed),
        rule=TokenLevel(),
        horizons=fixed(2),
        prompt=PROMPT,
        num_tokens=NUM_TOKENS,
    )
    missed_by = distance(law, chain_law(plain_model(target_logits, SamplingParams()), PROMPT, NUM_TOKENS))
    assert missed_by <= TOLERANCE if truthful else missed_by > RED
