"""Published and computed values of small cases, through the package's own sampling and acceptance.

The case numbers are those of the project's case list; biased variants are here to show that the cases can fail.
"""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from forerun.distributions import DenseLaw, Law, PointLaw, SamplingParams, law_from_logits, overlap, stack_laws
from forerun.verification import (
    Agreement,
    BlockVerification,
    Greedy,
    Lenient,
    Proposal,
    Rule,
    TokenLevel,
    TypicalAcceptance,
    token_level,
)
from tests.exactness.enumerate import (
    FINE,
    Horizons,
    Model,
    PreDraft,
    Tokens,
    chain_law,
    draws,
    generation_law,
    marginal,
    outcomes,
)
from tests.exactness.policies import fixed
from tests.exactness.tables import Table, always, constant, plain_row

TOLERANCE = 1e-12
RULE = TokenLevel()
BLOCK, AGREEMENT = BlockVerification(), Agreement()
EXACT = pytest.mark.parametrize("rule", [RULE, BLOCK, AGREEMENT], ids=lambda rule: rule.name)
AT_TEMPERATURE_ZERO = pytest.mark.parametrize(
    "rule",
    [RULE, BLOCK, AGREEMENT, Greedy(), TypicalAcceptance(), Lenient(0.1)],
    ids=lambda rule: rule.name,
)
LAST_BELOW_ONE = 1.0 - 2.0**-53


def output_law(
    target: Model,
    draft: Model,
    claimed: Model | None = None,
    horizons: Horizons | None = None,
    rule: Rule = RULE,
) -> list[float]:
    """Law of the first output token after one draft token."""
    law = generation_law(
        target=target,
        draft=draft,
        claimed=claimed,
        rule=rule,
        horizons=horizons or fixed(1),
        prompt=(),
        num_tokens=1,
    )
    return marginal(law, 0, target(()).vocab_size)


def acceptance(target: Model, draft: Model, claimed: Model | None = None, rule: Rule = RULE) -> float:
    """Probability that the first draft token stands."""
    tested = (claimed or draft)(())
    return sum(
        token_weight * weight
        for token, token_weight in draws(draft(()), FINE)
        for outcome, weight in outcomes(rule, (target(()), target((token,))), (tested,), (token,), FINE)
        if outcome.accepted == 1
    )


def truncated(probs: tuple[float, ...], top_k: int) -> Table:
    """Top-k of a law, through the package's processing."""
    logits = torch.tensor([probs], dtype=torch.float64).log()
    return Table({(): law_from_logits(logits, SamplingParams(top_k=top_k))}, 0)


def rows(*probs: list[float]) -> DenseLaw:
    """A law with one row per argument."""
    return DenseLaw(torch.tensor(probs, dtype=torch.float64))


def ones(value: float, count: int) -> torch.Tensor:
    """The same uniform number for every position."""
    return torch.full((count,), value, dtype=torch.float64)


class TestEqualLaws:
    """C02: draft = target is accepted always (seen: 0.38 by comparing samples, 0.5 by argmax drafts)."""

    @pytest.mark.parametrize("rule", [RULE, BLOCK], ids=lambda rule: rule.name)
    def test_acceptance_is_one(self, rule: Rule) -> None:
        law = constant([0.5, 0.3, 0.2])
        assert acceptance(law, law, rule=rule) == 1.0
        assert float(overlap(law(()), law(()))) == 1.0

    def test_agreement_pays_for_its_freedom(self) -> None:
        """The two numbers seen, 0.38 and 0.5, are those of agreement; its output law is right all the same."""
        law = constant([0.5, 0.3, 0.2])
        assert acceptance(law, law, rule=AGREEMENT) == pytest.approx(0.38, abs=TOLERANCE)
        assert acceptance(law, always(0, 3), rule=AGREEMENT) == pytest.approx(0.5, abs=TOLERANCE)
        assert output_law(law, law, rule=AGREEMENT) == pytest.approx([0.5, 0.3, 0.2], abs=TOLERANCE)

    @given(
        weights=st.lists(st.floats(1e-300, 1.0), min_size=2, max_size=6),
        uniform=st.one_of(st.floats(0.0, 1.0, exclude_max=True), st.just(LAST_BELOW_ONE)),
    )
    def test_every_token_at_every_uniform(self, weights: list[float], uniform: float) -> None:
        """A ratio that rounds below 1, or a product that rounds up to the target, would reject here."""
        law = rows([weight / sum(weights) for weight in weights])
        for token in range(len(weights)):
            if float(law.prob_of(torch.tensor([token]))) > 0.0:
                proposal = Proposal(torch.tensor([token]), law)
                for rule in (RULE, BLOCK):
                    assert rule.verify(stack_laws([law, law]), proposal, uniforms=ones(uniform, 1)).accepted == 1


class TestDeterministicDraft:
    """C03: an argmax draft has a one-hot law."""

    @EXACT
    def test_one_hot_law(self, rule: Rule) -> None:
        target = constant([0.6, 0.4])
        assert acceptance(target, always(0, 2), rule=rule) == pytest.approx(0.6, abs=TOLERANCE)
        assert output_law(target, always(0, 2), rule=rule) == pytest.approx([0.6, 0.4], abs=TOLERANCE)

    def test_raw_law_instead_is_biased(self) -> None:
        """Transformers issue 32867: min(1, 0.6 / 0.8) for an argmax draft."""
        biased = output_law(constant([0.6, 0.4]), always(0, 2), claimed=constant([0.8, 0.2]))
        assert biased == pytest.approx([0.75, 0.25], abs=TOLERANCE)

    def test_softmax_ratio_gives_six_sevenths(self) -> None:
        """Trees of top-k candidates tested with the softmax ratio: 6/7 instead of 3/5."""
        biased = output_law(constant([0.6, 0.4]), always(0, 2), claimed=constant([0.7, 0.3]))
        assert biased == pytest.approx([6 / 7, 1 / 7], abs=TOLERANCE)
        assert output_law(constant([0.6, 0.4]), always(0, 2)) == pytest.approx([3 / 5, 2 / 5], abs=TOLERANCE)


class TestTruncation:
    """C04 and C05: top-k 2 on target and draft."""

    target_raw, draft_raw = (0.5, 0.3, 0.15, 0.05), (0.4, 0.3, 0.2, 0.1)

    def test_both_truncated(self) -> None:
        target, draft = truncated(self.target_raw, 2), truncated(self.draft_raw, 2)
        assert output_law(target, draft) == pytest.approx([0.625, 0.375, 0.0, 0.0], abs=TOLERANCE)
        assert acceptance(target, draft) == pytest.approx(0.9464285714285714, abs=TOLERANCE)

    def test_draft_left_whole(self) -> None:
        target, draft = truncated(self.target_raw, 2), constant(self.draft_raw)
        assert output_law(target, draft) == pytest.approx([0.625, 0.375, 0.0, 0.0], abs=TOLERANCE)
        assert acceptance(target, draft) == pytest.approx(0.7, abs=TOLERANCE)

    def test_drawn_truncated_tested_whole_is_biased(self) -> None:
        target, draft, claimed = (
            truncated(self.target_raw, 2),
            truncated(self.draft_raw, 2),
            constant(self.draft_raw),
        )
        biased = output_law(target, draft, claimed)
        assert biased == pytest.approx([4 / 7, 3 / 7, 0.0, 0.0], abs=TOLERANCE)
        assert acceptance(target, draft, claimed) == pytest.approx(1.0, abs=TOLERANCE)

    def test_target_unprocessed_leaks(self) -> None:
        """C05: with the raw target in the test, tokens outside the user's top-k come out."""
        leaking = output_law(constant(self.target_raw), truncated(self.draft_raw, 2))
        assert leaking == pytest.approx(self.target_raw, abs=TOLERANCE)
        processed = output_law(truncated(self.target_raw, 2), truncated(self.draft_raw, 2))
        assert processed[2:] == [0.0, 0.0]


class TestZeroOnOneSide:
    """C06."""

    @EXACT
    @pytest.mark.parametrize("uniform", [0.0, 5e-324, 0.5, LAST_BELOW_ONE])
    def test_excluded_token_is_never_accepted(self, uniform: float, rule: Rule) -> None:
        """A target of zero is rejected at u = 0 too (vllm-ascend issue 13730)."""
        target, draft = rows([0.0, 1.0], [0.5, 0.5]), rows([0.5, 0.5])
        outcome = rule.verify(target, Proposal(torch.tensor([0]), draft), uniforms=ones(uniform, 1))
        assert outcome.accepted == 0
        assert outcome.emission.dense().tolist() == [[0.0, 1.0]]
        assert outcome.accept_probabilities.tolist() == [0.0]

    @EXACT
    @pytest.mark.parametrize("uniform", [0.0, LAST_BELOW_ONE])
    def test_nothing_stands_behind_an_excluded_token(self, uniform: float, rule: Rule) -> None:
        """Block verification looks on after a failure, and must find nothing there."""
        target, draft = rows([0.0, 1.0], [0.5, 0.5], [1.0, 0.0]), rows([0.5, 0.5], [0.25, 0.75])
        outcome = rule.verify(target, Proposal(torch.tensor([0, 0]), draft), uniforms=ones(uniform, 2))
        assert outcome.accepted == 0
        assert outcome.prefix_weights.tolist() == [0.0, 0.0]
        assert outcome.emission.dense().tolist() == [[0.0, 1.0]]

    @EXACT
    def test_token_the_draft_cannot_propose_comes_out(self, rule: Rule) -> None:
        target, draft = constant([0.25, 0.45, 0.3]), constant([0.5, 0.5, 0.0])
        assert output_law(target, draft, rule=rule) == pytest.approx([0.25, 0.45, 0.3], abs=TOLERANCE)


def test_tiny_probabilities_do_not_underflow() -> None:
    """C09: half-precision softmax makes the ratio 0/0."""
    law = law_from_logits(torch.tensor([[0.0, -18.0]]), SamplingParams())
    assert float(law.prob_of(torch.tensor([1]))) == pytest.approx(1.523e-8, rel=1e-4)
    proposal = Proposal(torch.tensor([1]), law)
    outcome = token_level(stack_laws([law, law]), proposal, uniforms=ones(LAST_BELOW_ONE, 1))
    assert outcome.accepted == 1
    assert outcome.accept_probabilities.tolist() == [1.0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("temperature", [0.0, 1e-6, 1e-5, 1e-4])
def test_tiny_temperatures_are_greedy_or_as_good(temperature: float, dtype: torch.dtype) -> None:
    """C11: 2 / 1e-6 overflows half precision."""
    law = law_from_logits(torch.tensor([[2.0, 1.0]], dtype=dtype), SamplingParams(temperature=temperature))
    assert law.dense().tolist() == [[1.0, 0.0]]
    assert isinstance(law, PointLaw) == (temperature < 1e-5)
    assert law.sample(uniforms=ones(LAST_BELOW_ONE, 1)).tolist() == [0]


@AT_TEMPERATURE_ZERO
@pytest.mark.parametrize(("proposed", "accepted"), [(0, 1), (1, 0)])
def test_greedy_tie_goes_to_the_lowest_id(proposed: int, accepted: int, rule: Rule) -> None:
    """C12: plain and verifying path must break the tie alike."""
    target = law_from_logits(torch.tensor([[1.0, 1.0, 0.0]] * 2), SamplingParams(temperature=0.0))
    proposal = Proposal(torch.tensor([proposed]), PointLaw(torch.tensor([proposed]), 3))
    outcome = rule.verify(target, proposal, uniforms=ones(0.0, 1))
    assert outcome.accepted == accepted
    assert outcome.emission.sample(uniforms=ones(0.9, 1)).tolist() == [0]


def test_a_single_draft_token_is_verified() -> None:
    """C13: a one-token lookup draft must not be committed unseen."""
    target = PointLaw(torch.tensor([2, 0]), 3)
    outcome = token_level(target, Proposal(torch.tensor([1]), PointLaw(torch.tensor([1]), 3)), uniforms=ones(0.0, 1))
    assert outcome.accepted == 0
    assert outcome.emission.sample(uniforms=ones(0.0, 1)).tolist() == [2]


@AT_TEMPERATURE_ZERO
@pytest.mark.parametrize(
    ("horizon", "wrong_at"), [(horizon, wrong) for horizon in range(1, 5) for wrong in range(horizon)]
)
def test_a_rejected_position_keeps_its_own_correction(horizon: int, wrong_at: int, rule: Rule) -> None:
    """C14: the token after a rejection at j is the choice of target row j, not of the row after it."""
    choices = torch.tensor([3, 1, 4, 2, 0][: horizon + 1])
    drafted = choices[:horizon].clone()
    drafted[wrong_at] = (drafted[wrong_at] + 1) % 5
    proposal = Proposal(drafted, PointLaw(drafted, 5))
    outcome = rule.verify(PointLaw(choices, 5), proposal, uniforms=ones(0.0, horizon))
    assert outcome.accepted == wrong_at
    assert outcome.emission.sample(uniforms=ones(0.0, 1)).tolist() == [int(choices[wrong_at])]


class TestCuttingAfterLooking:
    """C16 and its relatives: the length was chosen by the token it concerns."""

    fair = (0.5, 0.5)

    def second_token(self, horizons: Horizons, rule: Rule = RULE) -> list[float]:
        law = generation_law(
            target=constant(self.fair),
            draft=constant(self.fair),
            rule=rule,
            horizons=horizons,
            prompt=(),
            num_tokens=2,
        )
        return marginal(law, 1, 2)

    @pytest.mark.parametrize(
        ("rule", "seen"), [(RULE, 0.75), (BLOCK, 0.75), (AGREEMENT, 0.5)], ids=["token-level", "block", "agreement"]
    )
    def test_fair_coin(self, rule: Rule, seen: float) -> None:
        """Drop the second draft token if it is 0: P(second = 1) = 3/4, unless the target draws its own."""
        dropping = Horizons(lambda _: {2: 1.0}, cut=lambda _, drafted: 1 + drafted[1])
        assert self.second_token(dropping, rule)[1] == pytest.approx(seen, abs=TOLERANCE)

    @EXACT
    def test_stopping_before_the_draw_is_exact(self, rule: Rule) -> None:
        stopping = Horizons(lambda _: {2: 1.0}, stop=lambda _, drafted: drafted == (0,))
        assert self.second_token(stopping, rule)[1] == pytest.approx(0.5, abs=TOLERANCE)

    def test_discard_on_low_draft_probability(self) -> None:
        """Draft (0.6, 0.4), target (0.5, 0.5), tokens drawn with probability below 1/2 discarded: P(0) = 0.7."""
        discarding = Horizons(lambda _: {1: 1.0}, cut=lambda _, drafted: 1 - drafted[0])
        biased = output_law(constant([0.5, 0.5]), constant([0.6, 0.4]), horizons=discarding)
        assert biased == pytest.approx([0.7, 0.3], abs=TOLERANCE)


class TestThroughputScheduler:
    """DSpark, appendix A: admit tokens while the expected throughput rises.

    The confidence of position 2 depends on token 1 (a Markov head): sure after 0, hopeless after 1. With the early
    stop, position 1 is decided before token 1 is looked at; a search over all lengths looks past a drop at the second
    confidence and thereby at token 1.
    """

    steps_per_second = (1.0, 0.5, 0.45)
    target, draft = (0.7, 0.3), (0.5, 0.5)

    def throughputs(self, drafted: Tokens) -> list[float]:
        """Expected tokens times steps per second for each number of draft tokens."""
        survival = [1.0, 0.8, 0.8 * (1 - drafted[0])]
        return [sum(survival[: length + 1]) * rate for length, rate in enumerate(self.steps_per_second)]

    def global_best(self, _: PreDraft, drafted: Tokens) -> int:
        rates = self.throughputs(drafted)
        return rates.index(max(rates))

    def stop_at_first_drop(self, _: PreDraft, drafted: Tokens) -> int:
        rates = self.throughputs(drafted)
        return next((length for length in range(2) if rates[length + 1] < rates[length]), 2)

    def test_without_the_break(self) -> None:
        horizons = Horizons(lambda _: {2: 1.0}, cut=self.global_best)
        biased = output_law(constant(self.target), constant(self.draft), horizons=horizons)
        assert biased == pytest.approx([0.85, 0.15], abs=TOLERANCE)
        block = output_law(constant(self.target), constant(self.draft), horizons=horizons, rule=BLOCK)
        assert abs(block[0] - 0.7) > 0.1
        agreement = output_law(constant(self.target), constant(self.draft), horizons=horizons, rule=AGREEMENT)
        assert agreement == pytest.approx([0.7, 0.3], abs=TOLERANCE)

    @EXACT
    @pytest.mark.parametrize("one_token_rate", [0.5, 0.9], ids=["drops-at-once", "drops-later"])
    def test_with_the_break(self, one_token_rate: float, rule: Rule) -> None:
        self.steps_per_second = (1.0, one_token_rate, 0.45)
        horizons = Horizons(lambda _: {2: 1.0}, cut=self.stop_at_first_drop)
        law = output_law(constant(self.target), constant(self.draft), horizons=horizons, rule=rule)
        assert law == pytest.approx([0.7, 0.3], abs=TOLERANCE)


@pytest.mark.parametrize(
    ("rule", "accepted"),
    [(RULE, 10 / 9), (BLOCK, 11 / 9), (AGREEMENT, 4 / 9 + 16 / 81)],
    ids=["token-level", "block", "agreement"],
)
def test_expected_accepted_tokens_of_two(rule: Rule, accepted: float) -> None:
    """C17: 10/9 and 11/9 for target (1/3, 2/3), draft (2/3, 1/3), horizon 2; the output law is the same."""
    target, draft = constant([1 / 3, 2 / 3])(()), constant([2 / 3, 1 / 3])(())
    expected = sum(
        first_weight * second_weight * weight * outcome.accepted
        for first, first_weight in draws(draft, FINE)
        for second, second_weight in draws(draft, FINE)
        for outcome, weight in outcomes(rule, (target,) * 3, (draft,) * 2, (first, second), FINE)
    )
    assert expected == pytest.approx(accepted, abs=TOLERANCE)
    law = generation_law(
        target=constant([1 / 3, 2 / 3]),
        draft=constant([2 / 3, 1 / 3]),
        rule=rule,
        horizons=fixed(2),
        prompt=(),
        num_tokens=3,
    )
    assert law == pytest.approx(chain_law(lambda _: [1 / 3, 2 / 3], (), 3), abs=TOLERANCE)


@pytest.mark.parametrize("seed_uniform", [0.0, 0.3, LAST_BELOW_ONE])
def test_greedy_does_not_depend_on_the_seed(seed_uniform: float) -> None:
    """C27: at T = 0 all seeds give the same tokens."""
    law: Law = law_from_logits(torch.tensor([[0.1, 0.3, 0.2]]), SamplingParams(temperature=0.0))
    assert law.sample(uniforms=ones(seed_uniform, 1)).tolist() == [1]


def test_oracle_of_this_suite() -> None:
    """The plain-Python processing against values worked out by hand."""
    logs = [math.log(prob) for prob in (0.5, 0.3, 0.15, 0.05)]
    assert plain_row(logs, SamplingParams(top_k=2)) == pytest.approx([0.625, 0.375, 0.0, 0.0], abs=TOLERANCE)
    assert plain_row(logs, SamplingParams(top_p=0.85)) == pytest.approx([10 / 19, 6 / 19, 3 / 19, 0.0], abs=TOLERANCE)
    assert plain_row(logs, SamplingParams(min_p=0.5)) == pytest.approx([0.625, 0.375, 0.0, 0.0], abs=TOLERANCE)
    assert plain_row([1.0, 1.0, 0.0], SamplingParams(temperature=0.0)) == [1.0, 0.0, 0.0]
    squares = [prob**2 / 0.365 for prob in (0.5, 0.3, 0.15, 0.05)]
    assert plain_row(logs, SamplingParams(temperature=0.5)) == pytest.approx(squares, abs=TOLERANCE)
