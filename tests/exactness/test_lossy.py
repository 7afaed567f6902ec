"""Rules that change the output law: by how much on an example, never beyond their promise, and they say so."""

import pytest
import torch

from forerun.distributions import DenseLaw, SamplingParams
from forerun.errors import ForerunError
from forerun.verification import MEDUSA_DELTA, MEDUSA_EPSILON, Lenient, Proposal, Rule, TypicalAcceptance
from tests.exactness.enumerate import chain_law, distance, generation_law, marginal
from tests.exactness.policies import fixed
from tests.exactness.tables import constant, plain_model, processed, random_logits

TOLERANCE = 1e-12
CLEARLY_BIASED = 1e-3
SAMPLED, GREEDY = SamplingParams(), SamplingParams(temperature=0.0)


def first_token(rule: Rule, target: list[float], draft: list[float]) -> list[float]:
    """Law of the first output token, with one draft token."""
    law = generation_law(
        target=constant(target), draft=constant(draft), rule=rule, horizons=fixed(1), prompt=(), num_tokens=1
    )
    return marginal(law, 0, len(target))


def missed_by(rule: Rule, params: SamplingParams, horizon: int = 2) -> float:
    """Distance from the target's law on random tables."""
    target_logits = random_logits(41, 3, 1)
    law = generation_law(
        target=processed(target_logits, params),
        draft=processed(random_logits(42, 3, 1), SAMPLED),
        rule=rule,
        horizons=fixed(horizon),
        prompt=(1,),
        num_tokens=3,
    )
    return distance(law, chain_law(plain_model(target_logits, params), (1,), 3))


@pytest.mark.parametrize("rule", [TypicalAcceptance(), Lenient(0.5)], ids=lambda rule: rule.name)
def test_lossy_rules_are_lossy_and_say_so(rule: Rule) -> None:
    """Catches a flag that is wrong either way: a rule called lossy that costs nothing would be a needless warning."""
    assert not rule.exact
    assert missed_by(rule, SAMPLED) > CLEARLY_BIASED
    assert missed_by(rule, SAMPLED, horizon=0) <= TOLERANCE  # without drafts there is nothing to be lossy about
    assert missed_by(rule, GREEDY) <= TOLERANCE


def test_typical_acceptance_lets_the_draft_through() -> None:
    """Both tokens lie above min(0.09, 0.3 exp(-0.673)), so the output is the draft's law, whatever the target's."""
    assert first_token(TypicalAcceptance(), [0.6, 0.4], [0.2, 0.8]) == pytest.approx([0.2, 0.8], abs=TOLERANCE)


def test_typical_acceptance_refuses_what_is_unlikely() -> None:
    """Token 2 lies below the threshold: it comes out only where the target itself draws it, 0.05 of half the time."""
    law = first_token(TypicalAcceptance(), [0.7, 0.25, 0.05], [0.25, 0.25, 0.5])
    assert law == pytest.approx([0.25 + 0.35, 0.25 + 0.125, 0.025], abs=TOLERANCE)


@pytest.mark.parametrize(
    ("epsilon", "delta", "stands"),
    [
        (0.25, 10.0, False),  # epsilon decides, and the comparison is strict
        (0.2499, 10.0, True),
        (0.9, 1.01, False),  # a quarter of delta decides
        (0.9, 0.99, True),
    ],
)
def test_threshold_of_typical_acceptance(epsilon: float, delta: float, stands: bool) -> None:
    """Four equal tokens: probability and exp(-H) are both 1/4. Catches the two constants swapped, and another base."""
    law = DenseLaw(torch.full((2, 4), 0.25))
    rule = TypicalAcceptance(epsilon=epsilon, delta=delta)
    outcome = rule.verify(law, Proposal(torch.tensor([0]), law.rows(0, 1)), uniforms=torch.tensor([0.5]).double())
    assert (outcome.accepted == 1) is stands


def test_published_constants() -> None:
    """Medusa's text has epsilon 0.09 and delta 0.3; its code has the defaults the other way round."""
    assert (MEDUSA_EPSILON, MEDUSA_DELTA) == (0.09, 0.3)


def test_lenience_by_hand() -> None:
    """Target (1/4, 3/4), fair draft: token 0 stands with 2/3 at lenience 3/4, and always at 1/2."""
    assert first_token(Lenient(0.75), [0.25, 0.75], [0.5, 0.5]) == pytest.approx([1 / 3, 2 / 3], abs=TOLERANCE)
    assert first_token(Lenient(0.5), [0.25, 0.75], [0.5, 0.5]) == pytest.approx([0.5, 0.5], abs=TOLERANCE)


@pytest.mark.parametrize("lenience", [0.9, 0.5, 0.1])
@pytest.mark.parametrize("target", [[0.1, 0.2, 0.7], [0.02, 0.49, 0.49]])
def test_lenience_never_makes_a_token_more_likely_than_promised(lenience: float, target: list[float]) -> None:
    """At most target / lenience, for drafts of all kinds; the comparison turned round would break it."""
    for draft in ([0.7, 0.2, 0.1], [0.34, 0.33, 0.33], [0.98, 0.01, 0.01]):
        law = first_token(Lenient(lenience), target, draft)
        assert all(found <= wanted / lenience + TOLERANCE for found, wanted in zip(law, target, strict=True))


def test_lenience_one_is_token_level() -> None:
    """The strict end of the scale is exact."""
    assert missed_by(Lenient(1.0), SAMPLED) <= TOLERANCE


@pytest.mark.parametrize("lenience", [0.0, -0.5, 1.5, float("nan")])
def test_lenience_out_of_range_is_refused(lenience: float) -> None:
    """Lenience 0 would accept everything, above 1 it would refuse equal laws."""
    with pytest.raises(ForerunError, match="give a number above 0"):
        Lenient(lenience)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.3), (1.0, 0.3), (0.09, 0.0), (float("nan"), 0.3)])
def test_thresholds_out_of_range_are_refused(epsilon: float, delta: float) -> None:
    """A threshold of 0 lets everything through, one of 1 nothing."""
    with pytest.raises(ForerunError, match="give epsilon in"):
        TypicalAcceptance(epsilon=epsilon, delta=delta)
