"""Whole generations have the target's law: rules x processing x horizon processes, by enumeration.

The expected law is computed in plain Python from the logits, so an error in processing, sampling, acceptance, residual
or bonus shows here. Tolerance: float64 sums of at most a few thousand products, each right to about 1e-15.
"""

import pytest

from forerun.distributions import SamplingParams
from forerun.verification import Rule, TokenLevel
from tests.exactness.enumerate import Horizons, chain_law, distance, generation_law
from tests.exactness.policies import ILLEGAL, LEGAL
from tests.exactness.tables import constant, plain_model, processed, random_logits

TOLERANCE = 1e-12
CLEARLY_BIASED = 1e-3

RULES: dict[str, Rule] = {"token-level": TokenLevel()}

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


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
@pytest.mark.parametrize(("target_params", "draft_params"), PROCESSING.values(), ids=PROCESSING.keys())
@pytest.mark.parametrize(("vocab_size", "order", "num_tokens"), [(2, 2, 5), (3, 1, 4)], ids=["bits", "three-tokens"])
def test_output_law_is_the_targets(
    rule: Rule,
    target_params: SamplingParams,
    draft_params: SamplingParams,
    vocab_size: int,
    order: int,
    num_tokens: int,
) -> None:
    """Catches any departure from the target's law, for every legal horizon process."""
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
            target=target, draft=draft, rule=rule, horizons=horizons, prompt=prompt, num_tokens=num_tokens
        )
        assert sum(law.values()) == pytest.approx(1.0, abs=TOLERANCE)
        distances[name] = distance(law, expected)
    assert max(distances.values()) <= TOLERANCE, distances


@pytest.mark.parametrize("horizons", ILLEGAL.values(), ids=ILLEGAL.keys())
@pytest.mark.parametrize(("target_probs", "draft_probs"), [((0.5, 0.5), (0.5, 0.5)), ((0.3, 0.7), (0.6, 0.4))])
def test_looking_at_the_tokens_first_is_biased(
    horizons: Horizons, target_probs: tuple[float, float], draft_probs: tuple[float, float]
) -> None:
    """An enumeration that could not see selection would pass everything."""
    law = generation_law(
        target=constant(target_probs),
        draft=constant(draft_probs),
        rule=TokenLevel(),
        horizons=horizons,
        prompt=(0,),
        num_tokens=4,
    )
    assert distance(law, chain_law(lambda _: target_probs, (0,), 4)) > CLEARLY_BIASED


@pytest.mark.parametrize("horizons", ILLEGAL.values(), ids=ILLEGAL.keys())
def test_looking_at_deterministic_tokens_is_harmless(horizons: Horizons) -> None:
    """Refusing to shorten an argmax draft would be a needless restriction: it holds nothing random to select on."""
    target_logits, draft_logits = random_logits(3, 2, 2), random_logits(4, 2, 2)
    law = generation_law(
        target=processed(target_logits, PLAIN),
        draft=processed(draft_logits, GREEDY),
        rule=TokenLevel(),
        horizons=horizons,
        prompt=(0, 1),
        num_tokens=4,
    )
    assert distance(law, chain_law(plain_model(target_logits, PLAIN), (0, 1), 4)) <= TOLERANCE
