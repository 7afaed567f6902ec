"""Every policy by name keeps the target's law, by enumeration, while it learns; the negative controls do not.

The published numbers of rules that drop what they have seen are here too, through the package's own stop rules.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

import pytest

from forerun.distributions import SamplingParams
from forerun.horizons import CostTable, Guarded, HorizonPolicy
from forerun.horizons.rivals import (
    AcceptanceHead,
    AdaEDL,
    CalibratedScheduler,
    Cascade,
    DynamicConfidence,
    EMATiers,
    EntropySwitch,
    Search,
    SpecDec,
    StoppingPolicy,
    TableBandit,
    WindowedSurvival,
    llama_cpp,
)
from forerun.horizons.rivals.admission import best_total, by_budget, early_break
from forerun.horizons.rivals.calibrated_scheduler import Calibration, SameRoundSearch, ThroughputStop
from forerun.horizons.rivals.stop_rules import DropBelow, TokenProbability
from forerun.horizons.stop import StopRule
from forerun.recipes import HORIZONS
from forerun.verification import Agreement, BlockVerification, Greedy, Rule, TokenLevel
from tests.exactness.enumerate import FINE, Tokens, chain_law, draws, generation_law, marginal, outcomes
from tests.exactness.rivals import Enumerated, missed_by
from tests.exactness.tables import LogitTable, constant, plain_model, processed, random_logits
from tests.support.rounds import TABLE, World, play
from tests.support.speed import without_shape_checks

TOLERANCE = 1e-12
CLEARLY_BIASED = 1e-3
SAMPLED, GREEDY = SamplingParams(), SamplingParams(temperature=0.0)
PROMPT: Tokens = (1, 0)
TARGET_LOGITS, DRAFT_LOGITS = random_logits(51, 2, 1), random_logits(52, 2, 1)
RESIDUAL: list[Rule] = [TokenLevel(), BlockVerification()]
CONTROLS = [name for name, maker in HORIZONS.items() if not maker(None).exact]


@pytest.fixture(autouse=True)
def unchecked_shapes() -> Iterator[None]:
    """Thousands of small rounds; shapes are checked elsewhere."""
    with without_shape_checks():
        yield


def confidence_after(tokens: Tokens) -> float:
    """Of a head that sees the token before (a Markov head)."""
    return (0.9, 0.4)[tokens[-1]]


def missed(policy: HorizonPolicy, rule: Rule, *, num_tokens: int = 3, params: SamplingParams = SAMPLED,
           draft_params: SamplingParams = SAMPLED) -> tuple[float, set[int]]:  # fmt: skip
    """On random tables of two tokens; at most two drafts a round."""
    return missed_by(
        policy, rule, target=processed(TARGET_LOGITS, params), draft=processed(DRAFT_LOGITS, draft_params),
        expected=plain_model(TARGET_LOGITS, params), prompt=PROMPT, num_tokens=num_tokens, limit=2,
        confidence=confidence_after,
    )  # fmt: skip


def taught(name: str) -> HorizonPolicy:
    """After some rounds of a middling world, so that horizons are neither all large nor all small."""
    policy = HORIZONS[name](TABLE)
    play(policy, 30, seed=4, world=World(stands=lambda _, __: 0.5, limit=lambda _: 2, ends=0.0))
    return policy


CALIBRATED = Calibration(((0.0, 1.0),))
"""Confidences are taken as they are."""
STEEP = CostTable.from_profile([(0, 1.0), (1, 1.7), (2, 2.3)] * 40)
"""Measured so often that the few rounds here do not change it."""

LIVELY: dict[str, HorizonPolicy] = {
    "sglang-ema": EMATiers(warmup_rounds=1, decide_every=1, ladders=((1, (0, 1, 2)),), start=1),
    "windowed-survival": WindowedSurvival(costs=STEEP, window=1, hysteresis=0.05, prior_hazard=0.45),
    "llama-p-min": llama_cpp(n_max=2, p_min=0.7),
    "specdec-style": SpecDec(threshold=0.5, shortest=1),
    "specdec-style, own head": SpecDec(head=AcceptanceHead((0.0, -2.0, 1.0, 1.0, 1.0, 0.0)), shortest=1),
    "adaedl-style": AdaEDL(threshold=0.7, step=0.5),
    "entropy-switch-style": EntropySwitch(largest=2, cuts=(0.6, 0.65)),
    "cascade-style": Cascade(horizons=(1, 2), test_rounds=1, set_rounds=2),
    "table-bandit": TableBandit(costs=STEEP, arms=(0, 1, 2), weight=0.1),
    "amtp-guarded": Guarded(
        WindowedSurvival(costs=STEEP, window=1, hysteresis=0.05, prior_hazard=0.45),
        first_probe=1,
        probe_rounds=2,
        plain_every=2,
        rest_rounds=1,
        look_rounds=1,
        trial_rounds=2,
        probe_every=2,
    ),
    "dspark-early-break": CalibratedScheduler(costs=STEEP, calibration=CALIBRATED),
    "dspark-stale-budget": CalibratedScheduler(costs=STEEP, calibration=CALIBRATED, search=Search.STALE_BUDGET),
    "transformers-confidence": DynamicConfidence(),
}
"""Policies that the defaults would keep in their warm-up or at one horizon, in a setting where they move."""


@pytest.mark.parametrize("name", [name for name in HORIZONS if name not in CONTROLS])
def test_every_policy_is_exact(name: str) -> None:
    """Catches a policy that lets this round's drafts into its horizon, through a stop, state, coin or context."""
    assert missed(taught(name), TokenLevel())[0] <= TOLERANCE
    assert missed(HORIZONS[name](TABLE), BlockVerification())[0] <= TOLERANCE


@pytest.mark.parametrize("rule", RESIDUAL, ids=lambda rule: rule.name)
@pytest.mark.parametrize("name", LIVELY)
def test_every_moving_policy_is_exact(name: str, rule: Rule) -> None:
    """The same where horizons and stops really vary, which is asserted: one length would show nothing."""
    distance, lengths = missed(LIVELY[name].clone(), rule)
    assert distance <= TOLERANCE
    assert len(lengths) > 1


def control(name: str) -> HorizonPolicy:
    """A negative control, past its warm-up."""
    if name == "dspark-same-round":
        costs = CostTable.from_profile([(0, 1.0), (1, 2.0), (2, 2.4)])  # one draft alone never pays, two may
        return CalibratedScheduler(costs=costs, calibration=CALIBRATED, search=Search.SAME_ROUND)
    return HORIZONS[name](STEEP)


def test_the_negative_controls_are_all_there() -> None:
    """A control that calls itself exact would leave the tests below."""
    assert CONTROLS == ["dspark-same-round", "sampled-probability-cut"]


@pytest.mark.parametrize("name", [*CONTROLS, "llama-n-min"])
def test_a_policy_that_drops_what_it_saw_is_biased_where_it_says_so(name: str) -> None:
    """Under residual verification it misses the law; with agreement, greedily, and for argmax drafts it does not."""
    policy = llama_cpp(n_max=2, p_min=0.7, n_min=2) if name == "llama-n-min" else control(name)
    assert not policy.exact
    for rule in RESIDUAL:
        assert missed(policy.clone(), rule)[0] > CLEARLY_BIASED, rule.name
        assert missed(policy.clone(), rule, draft_params=GREEDY)[0] <= TOLERANCE, rule.name
    assert missed(policy.clone(), Agreement())[0] <= TOLERANCE
    assert missed(policy.clone(), Greedy(), params=GREEDY)[0] <= TOLERANCE


def test_llama_n_min_of_one_drops_nothing() -> None:
    """Catches a refusal of what is harmless."""
    policy = llama_cpp(n_max=2, p_min=0.7, n_min=1)
    assert policy.exact
    assert missed(policy, TokenLevel())[0] <= TOLERANCE


def output_law(rule: StopRule, acceptance: Rule, *, target: list[float], draft: list[float], limit: int,
               confidences: Callable[[Tokens], float] = lambda _: 0.5, num_tokens: int = 1) -> list[float]:  # fmt: skip
    """Law of the last of the output tokens, with constant laws."""
    enumerated = Enumerated(
        StoppingPolicy("tested", rule, cap=limit), target=constant(target), draft=constant(draft), limit=limit,
        confidence=confidences,
    )  # fmt: skip
    law = generation_law(
        target=constant(target), draft=constant(draft), rule=acceptance, horizons=enumerated.horizons, prompt=(0,),
        num_tokens=num_tokens,
    )  # fmt: skip
    return marginal(law, num_tokens - 1, len(target))


def markov(tokens: Tokens) -> float:
    """Confidence 0.8 in the first draft (behind the prompt); sure behind a drafted 0, hopeless behind a 1."""
    return 0.8 if len(tokens) == 1 else (1.0, 0.0)[tokens[-1]]


@pytest.mark.parametrize(("rule", "first"), [(TokenLevel(), 0.85), (Agreement(), 0.7)], ids=lambda each: str(each))
def test_dspark_counterexample(rule: Rule, first: float) -> None:
    """Appendix A: steps per second 1, 0.5, 0.45; target (0.7, 0.3) comes out as (0.85, 0.15)."""
    seconds = (1.0, 1.0 / 0.5, 1.0 / 0.45)
    for stop, expected in ((SameRoundSearch(CALIBRATED, seconds), first), (ThroughputStop(CALIBRATED, seconds), 0.7)):
        law = output_law(stop, rule, target=[0.7, 0.3], draft=[0.5, 0.5], limit=2, confidences=markov)
        assert law == pytest.approx([expected, 1.0 - expected], abs=TOLERANCE)


def third_tells(tokens: Tokens) -> float:
    """Confidence 1 in the first draft, 1/2 in the second, and in the third what the second was."""
    return {1: 1.0, 2: 0.5}.get(len(tokens), (0.0, 1.0)[tokens[-1]])


@pytest.mark.parametrize(("rule", "second"), [(TokenLevel(), 0.75), (BlockVerification(), 0.75), (Agreement(), 0.5)])
def test_fair_bits(rule: Rule, second: float) -> None:
    """Fair target and draft: one draft goes on if the second is 0 and three if it is 1, so P(second = 1) = 3/4."""
    search = SameRoundSearch(CALIBRATED, (1.2, 2.0, 2.6, 2.8))
    law = output_law(search, rule, target=[0.5, 0.5], draft=[0.5, 0.5], limit=3, confidences=third_tells, num_tokens=2)
    assert law[1] == pytest.approx(second, abs=TOLERANCE)


def test_discard_and_include() -> None:
    """Draft (0.6, 0.4), target (0.5, 0.5), threshold 1/2: dropping the token gives 0.70, keeping it 0.50."""
    kept = TokenProbability(0.5)
    for rule, limit, expected in ((DropBelow(0.5), 1, 0.7), (kept, 1, 0.5), (kept, 2, 0.5)):
        law = output_law(rule, TokenLevel(), target=[0.5, 0.5], draft=[0.6, 0.4], limit=limit)
        assert law[0] == pytest.approx(expected, abs=TOLERANCE)


Admission = Callable[[list[list[float]]], list[int]]
SECONDS = (1.0, 1.5, 1.7, 1.75, 1.8)
"""For two requests with two drafts each: a step that the early break does not look behind."""


def batch_distance(admit: Admission, seed: int, *, drafts_seen: bool) -> float:
    """How far the joint law of two requests' first two tokens is from the product of the targets' laws.

    Args:
        admit: from both requests' survivals to their numbers of admitted drafts.
        seed: of tables and confidences.
        drafts_seen: the confidence in the second draft depends on the first.
    """
    rng = random.Random(seed)
    tables = [(random_logits(seed + r, 2, 1), random_logits(seed + 50 + r, 2, 1)) for r in range(2)]
    firsts = [rng.uniform(0.3, 0.95) for _ in range(2)]
    seconds = [[rng.uniform(0.1, 1.0) for _ in range(2)] for _ in range(2)]
    per_request = []
    for _, draft_logits in tables:
        draft = processed(draft_logits, SAMPLED)
        per_request.append([
            ((one, two), first_weight * second_weight)
            for one, first_weight in draws(draft((0,)), FINE)
            for two, second_weight in draws(draft((0, one)), FINE)
        ])  # fmt: skip
    joint: defaultdict[tuple[Tokens, Tokens], float] = defaultdict(float)
    for (left, left_weight), (right, right_weight) in product(*per_request):
        survivals = [
            [firsts[r], firsts[r] * seconds[r][drafted[0] if drafts_seen else 0]]
            for r, drafted in enumerate((left, right))
        ]
        admitted = admit(survivals)
        laws = [answer_law(*tables[r], drafted[: admitted[r]]) for r, drafted in enumerate((left, right))]
        for (one, one_prob), (two, two_prob) in product(laws[0].items(), laws[1].items()):
            joint[one, two] += left_weight * right_weight * one_prob * two_prob
    plain = [chain_law(plain_model(target_logits, SAMPLED), (0,), 2) for target_logits, _ in tables]
    return max(abs(joint[one, two] - plain[0][one] * plain[1][two]) for one, two in product(plain[0], plain[1]))


def answer_law(target_logits: LogitTable, draft_logits: LogitTable, kept: Tokens) -> dict[Tokens, float]:
    """First two tokens behind the prompt 0, given the drafts that are verified."""
    target, draft = processed(target_logits, SAMPLED), processed(draft_logits, SAMPLED)
    prefixes = [(0, *kept[:length]) for length in range(len(kept) + 1)]
    laws = tuple(map(target, prefixes)), tuple(map(draft, prefixes[:-1]))
    found: defaultdict[Tokens, float] = defaultdict(float)
    for outcome, weight in outcomes(TokenLevel(), *laws, kept, FINE):
        for token, prob in draws(outcome.emission, FINE):
            answer = (*kept[: outcome.accepted], token)
            if len(answer) > 1:
                found[answer[:2]] += weight * prob
                continue
            for last, last_prob in draws(target((0, token)), FINE):
                found[token, last] += weight * prob * last_prob
    return found


def test_scheduling_two_requests_together() -> None:
    """Admission by early break, or by a budget of earlier rounds, is exact jointly; the search over everything is not.

    It becomes exact where confidences do not see the drafts. Catches ties and orders that let a draft decide on itself.
    """
    admissions: dict[str, Admission] = {
        "early break": partial(early_break, seconds=SECONDS),
        **{f"budget {n}": partial(by_budget, budget=n) for n in (1, 2, 3)},
        "same round": partial(best_total, seconds=SECONDS),
    }
    worst: defaultdict[str, float] = defaultdict(float)
    for seed in (0, 100, 200):
        for name, admit in admissions.items():
            worst[name] = max(worst[name], batch_distance(admit, seed, drafts_seen=True))
        blind = batch_distance(admissions["same round"], seed, drafts_seen=False)
        worst["blind"] = max(worst["blind"], blind)
    biased = worst.pop("same round")
    assert max(worst.values()) <= TOLERANCE, dict(worst)
    assert biased > CLEARLY_BIASED
