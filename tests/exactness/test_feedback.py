"""What outcomes teach: for every rule prefix weights average to survival, and overlaps to what the hazard takes away.

AMTP's evidence goes through the same enumeration, so it is right for rules whose tokens do not stand one by one.
"""

import math
from collections.abc import Iterator
from itertools import pairwise

import pytest

from forerun.distributions import SamplingParams
from forerun.horizons import Choice, RoundContext, RoundFeedback
from forerun.horizons.evidence import evidence
from forerun.verification import (
    Agreement,
    BlockVerification,
    Greedy,
    Lenient,
    Outcome,
    Rule,
    TokenLevel,
    TypicalAcceptance,
)
from tests.exactness.enumerate import FINE, Tokens, draws, outcomes
from tests.exactness.tables import processed, random_logits

TOLERANCE = 1e-12
HORIZON = 3
PROMPT: Tokens = (1, 0)

SAMPLED, GREEDY, TRUNCATED = SamplingParams(), SamplingParams(temperature=0.0), SamplingParams(top_p=0.8)
CASES: dict[str, tuple[Rule, SamplingParams, SamplingParams, int]] = {
    "token-level": (TokenLevel(), SAMPLED, SAMPLED, 3),
    "block": (BlockVerification(), SAMPLED, SAMPLED, 3),
    "block, truncated": (BlockVerification(), TRUNCATED, SamplingParams(temperature=1.5), 3),
    "block, one-hot": (BlockVerification(), SAMPLED, GREEDY, 2),
    "block, greedy": (BlockVerification(), GREEDY, SAMPLED, 2),
    "agreement": (Agreement(), SAMPLED, SAMPLED, 2),
    "agreement, one-hot": (Agreement(), TRUNCATED, GREEDY, 2),
    "greedy": (Greedy(), GREEDY, SAMPLED, 2),
    "typical": (TypicalAcceptance(epsilon=0.3, delta=0.8), SAMPLED, SAMPLED, 3),
    "typical, one-hot": (TypicalAcceptance(epsilon=0.3, delta=0.8), SAMPLED, GREEDY, 2),
    "lenient": (Lenient(0.6), SAMPLED, SAMPLED, 3),
    "lenient, one-hot": (Lenient(0.6), SAMPLED, GREEDY, 2),
}


def rounds(
    rule: Rule, target_params: SamplingParams, draft_params: SamplingParams, vocab_size: int
) -> Iterator[tuple[float, Outcome]]:
    """Every outcome of a round of three drafts, with its probability."""
    target = processed(random_logits(31, vocab_size, 2), target_params)
    draft = processed(random_logits(32, vocab_size, 2), draft_params)
    drafts: list[tuple[Tokens, float]] = [((), 1.0)]
    for _ in range(HORIZON):
        drafts = [
            ((*tokens, token), weight * share)
            for tokens, weight in drafts
            for token, share in draws(draft(PROMPT + tokens), FINE)
        ]
    for tokens, weight in drafts:
        prefixes = [PROMPT + tokens[:length] for length in range(HORIZON + 1)]
        laws = tuple(target(prefix) for prefix in prefixes), tuple(draft(prefix) for prefix in prefixes[:-1])
        for outcome, share in outcomes(rule, *laws, tokens, FINE):
            yield weight * share, outcome


def feedback(outcome: Outcome) -> RoundFeedback:
    """As the engine hands it to the horizon policy."""
    return RoundFeedback(
        choice=Choice(horizon=HORIZON, planned=HORIZON, explored=False, propensities=(1.0,) * HORIZON),
        context=RoundContext(limit=HORIZON, context_length=2, generated=1, temperature=1.0),
        accepted=outcome.accepted,
        accept_probabilities=tuple(outcome.accept_probabilities.tolist()),
        overlaps=tuple(outcome.overlaps.tolist()),
        seconds=1.0,
    )


@pytest.mark.parametrize(("rule", "target_params", "draft_params", "vocab_size"), CASES.values(), ids=CASES.keys())
def test_weights_and_overlaps_are_survival_and_hazard(
    rule: Rule, target_params: SamplingParams, draft_params: SamplingParams, vocab_size: int
) -> None:
    """Survival is counted from accepted tokens alone; the rule's own numbers must say the same on average.

    Catches overlaps of another rule (1 - TV where agreement needs a product), and block weights that forget the prefix.
    """
    survival = [1.0] + [0.0] * HORIZON
    mean_weights, mean_rejected = [0.0] * HORIZON, [0.0] * HORIZON
    learned = {(soft, kind): [0.0] * HORIZON for soft in (False, True) for kind in ("weight", "rejected")}
    for probability, outcome in rounds(rule, target_params, draft_params, vocab_size):
        weights, overlaps = [1.0, *outcome.prefix_weights.tolist()], outcome.overlaps.tolist()
        assert all(0.0 <= weight <= 1.0 for weight in weights)
        assert all(0.0 <= shared <= 1.0 + TOLERANCE for shared in overlaps)
        for index in range(HORIZON):
            survival[index + 1] += probability * (outcome.accepted > index)
            mean_weights[index] += probability * weights[index + 1]
            mean_rejected[index] += probability * weights[index] * (1.0 - overlaps[index])
        for soft in (False, True):
            for index, item in enumerate(evidence(feedback(outcome), soft=soft, importance_clip=math.inf).items()):
                learned[soft, "weight"][index] += probability * item.weight
                learned[soft, "rejected"][index] += probability * item.weight * item.label
    lost = [before - after for before, after in pairwise(survival)]
    assert mean_weights == pytest.approx(survival[1:], abs=TOLERANCE)
    assert mean_rejected == pytest.approx(lost, abs=TOLERANCE)
    for soft in (False, True):
        assert learned[soft, "weight"] == pytest.approx(survival[:-1], abs=TOLERANCE)
        assert learned[soft, "rejected"] == pytest.approx(lost, abs=TOLERANCE)


def test_a_good_token_rescues_those_before_it() -> None:
    """Block verification's factors exceed 1 at times; clipping them to 1 would teach too little survival."""
    factors = [
        float(outcome.accept_probabilities.max()) for _, outcome in rounds(BlockVerification(), SAMPLED, SAMPLED, 3)
    ]
    assert max(factors) > 1.1
