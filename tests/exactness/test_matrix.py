"""Whole generations have the target's law: rules x processing x horizon processes, by enumeration.

The expected law is computed in plain Python from the logits, so an error in processing, sampling, acceptance, residual
or bonus shows here. Tolerance: float64 sums of at most a few thousand products, each right to about 1e-15.
"""

import pytest

from forerun.distributions import SamplingParams
from forerun.verification import Agreement, BlockVerification, Greedy, Rule, TokenLevel, Truncation
from tests.exactness.enumerate import Horizons, chain_law, distance, generation_law
from tests.exactness.policies import ILLEGAL, LEGAL
from tests.exactness.tables import constant, plain_model, processed, random_logits

TOLERANCE = 1e-12
CLEARLY_BIASED = 1e-3

RULES: dict[str, Rule] = {
    "token-level": TokenLevel(),
    "block": BlockVerification(),
    "agreement": Agreement(),
    "greedy": Greedy(),
}

PLAIN = SamplingParams()
GREEDY = SamplingParams(temperature=0.0)
PROCESSING: dict[str, tuple[SamplingParams, SamplingParams]] = {
    "plain": (PLAIN, PLAIN),
    "cool": (SamplingParams(temperature=0.5),) * 2,
    "hot": (SamplingParams(temperature=2.0),) * 2,
    "top-k": (SamplingParams(top_k=2),) * 2,
    "top-p": (SamplingParams(top_p=0.7),) * 2,
    "min-p": (SamplingParams(min_p=0.4),) * 2,
    "all": (SamplingParams(temperature=1.5, top_k=2, top_p=0.8, min_p=0.2),) * 2,
    "greedy": (GREEDY, GREEDY),
    "draft-unprocessed": (SamplingParams(temperature=0.7, top_k=2), PLAIN),
    "target-unprocessed": (PLAIN, SamplingParams(top_k=2)),
    "draft-cooler": (PLAIN, SamplingParams(temperature=0.5)),
    "one-hot-proposals": (PLAIN, GREEDY),
    "one-hot-proposals-truncated-target": (SamplingParams(top_p=0.7), GREEDY),
    "sampled-draft-greedy-target": (GREEDY, PLAIN),
}
"""Target's and draft's parameters."""


SIZES = {"bits": (2, 2, 5), "three-tokens": (3, 1, 4)}
"""Vocabulary, how many tokens a law depends on, and length of the output."""


def combinations() -> list[tuple[str, str, str]]:
    """Token-level verification with everything; every other rule meets each processing once.

    Top-k 2 leaves two tokens as they are, so it takes three. Greedy verification takes greedy targets only.
    """
    chosen = [("token-level", processing, size) for processing in PROCESSING for size in SIZES]
    for rule in list(RULES)[1:]:
        for processing, (target, draft) in PROCESSING.items():
            size = "bits" if target.top_k is None and draft.top_k is None else "three-tokens"
            if rule != "greedy" or target.greedy:
                chosen.append((rule, processing, size))
    return chosen


@pytest.mark.parametrize(("rule", "processing", "size"), combinations())
def test_output_law_is_the_targets(rule: str, processing: str, size: str) -> None:
    """Catches any departure from the target's law, for every legal horizon process."""
    (target_params, draft_params), (vocab_size, order, num_tokens) = PROCESSING[processing], SIZES[size]
    target_logits = random_logits(1, vocab_size, order)
    target, draft = (
        processed(target_logits, target_params),
        processed(random_logits(2, vocab_size, order), draft_params),
    )
    prompt = (1,) * order
    expected = chain_law(plain_model(target_logits, target_params), prompt, num_tokens)

    distances = {}
    for name, horizons in LEGAL.items():
        law = generation_law(
            target=target, draft=draft, rule=RULES[rule], horizons=horizons, prompt=prompt, num_tokens=num_tokens
        )
        assert sum(law.values()) == pytest.approx(1.0, abs=TOLERANCE)
        distances[name] = distance(law, expected)
    assert max(distances.values()) <= TOLERANCE, distances


def rules_that_allow(truncation: Truncation) -> list[str]:
    """Names of the rules with that property."""
    return [name for name, rule in RULES.items() if rule.truncation is truncation]


@pytest.mark.parametrize("rule", rules_that_allow(Truncation.BEFORE_DRAWING))
@pytest.mark.parametrize("horizons", ILLEGAL.values(), ids=ILLEGAL.keys())
@pytest.mark.parametrize(("target_probs", "draft_probs"), [((0.5, 0.5), (0.5, 0.5)), ((0.3, 0.7), (0.6, 0.4))])
def test_looking_at_the_tokens_first_is_biased(
    rule: str, horizons: Horizons, target_probs: tuple[float, float], draft_probs: tuple[float, float]
) -> None:
    """An enumeration that could not see selection would pass everything; and the stricter property is needed."""
    law = generation_law(
        target=constant(target_probs),
        draft=constant(draft_probs),
        rule=RULES[rule],
        horizons=horizons,
        prompt=(0,),
        num_tokens=4,
    )
    assert distance(law, chain_law(lambda _: target_probs, (0,), 4)) > CLEARLY_BIASED


def missed_by_bits(
    rule: Rule, target_params: SamplingParams, draft_params: SamplingParams, horizons: Horizons
) -> float:
    """How far a generation of four bits is from the target's law."""
    target_logits, draft_logits = random_logits(3, 2, 2), random_logits(4, 2, 2)
    law = generation_law(
        target=processed(target_logits, target_params),
        draft=processed(draft_logits, draft_params),
        rule=rule,
        horizons=horizons,
        prompt=(0, 1),
        num_tokens=4,
    )
    return distance(law, chain_law(plain_model(target_logits, target_params), (0, 1), 4))


@pytest.mark.parametrize("rule", rules_that_allow(Truncation.ANY_DRAFT))
@pytest.mark.parametrize("horizons", ILLEGAL.values(), ids=ILLEGAL.keys())
def test_looking_at_the_tokens_first_is_harmless_where_the_rule_says_so(rule: str, horizons: Horizons) -> None:
    """Catches a rule that claims to stand any truncation and does not."""
    target_params = GREEDY if rule == "greedy" else PLAIN
    assert missed_by_bits(RULES[rule], target_params, PLAIN, horizons) <= TOLERANCE


@pytest.mark.parametrize("rule", ["token-level", "block"])
@pytest.mark.parametrize("horizons", ILLEGAL.values(), ids=ILLEGAL.keys())
def test_looking_at_deterministic_tokens_is_harmless(rule: str, horizons: Horizons) -> None:
    """Refusing to shorten an argmax draft would be a needless restriction: it holds nothing random to select on."""
    assert missed_by_bits(RULES[rule], PLAIN, GREEDY, horizons) <= TOLERANCE


@pytest.mark.parametrize("rule", [name for name, rule in RULES.items() if not rule.needs_draft_law])
def test_a_wrong_draft_law_is_harmless_where_it_is_not_needed(rule: str) -> None:
    """Catches a rule that claims not to need the draft's law and lets it decide; token-level is the contrast."""
    target_params = GREEDY if rule == "greedy" else PLAIN
    target_logits, draft_logits = random_logits(3, 3, 1), random_logits(4, 3, 1)

    def missed_by(tested: Rule, params: SamplingParams) -> float:
        law = generation_law(
            target=processed(target_logits, params),
            draft=processed(draft_logits, PLAIN),
            claimed=processed(random_logits(5, 3, 1), PLAIN),
            rule=tested,
            horizons=LEGAL["fixed-2"],
            prompt=(1,),
            num_tokens=3,
        )
        return distance(law, chain_law(plain_model(target_logits, params), (1,), 3))

    assert missed_by(RULES[rule], target_params) <= TOLERANCE
    assert missed_by(TokenLevel(), PLAIN) > CLEARLY_BIASED
    assert missed_by(BlockVerification(), PLAIN) > CLEARLY_BIASED
