"""Totals and the figures derived from them."""

import pytest

from forerun.distributions import SamplingParams
from forerun.drafters import PromptLookup
from forerun.engine import RoundRecord, RoundSeconds, RoundTotals, generate
from forerun.horizons import Choice
from tests.support.drafters import wrong_at
from tests.support.targets import successor_target


def record(*, horizon: int, drafted: int, accepted: int, emitted: int, seconds: float = 0.01) -> RoundRecord:
    return RoundRecord(
        index=0,
        limit=8,
        choice=Choice(horizon=horizon, planned=horizon, explored=False, propensities=(1.0,) * horizon),
        drafted=drafted,
        depth=drafted,
        riders=0,
        beyond_drafter=False,
        cut_short=False,
        accepted=accepted,
        token_ids=(7,) * emitted,
        accepted_emitted=min(accepted, emitted),
        text="",
        logprobs=None,
        finish=None,
        seconds=RoundSeconds(controller=seconds, draft=2 * seconds, verify=4 * seconds, commit=8 * seconds),
    )


def full(*accepted: int) -> list[RoundRecord]:
    return [record(horizon=3, drafted=3, accepted=count, emitted=count + 1) for count in accepted]


@pytest.mark.parametrize("groups", [[(3, 2, 1, 0)], [(3, 1), (2, 0)], [(3,), (2, 1, 0)], [(0,), (1,), (2,), (3,)]])
def test_the_mean_does_not_depend_on_the_grouping(groups: list[tuple[int, ...]]) -> None:
    """C59. Catches products of pooled rates (tau 2.21875) and means of ratios (2.25)."""
    total = RoundTotals()
    for group in groups:
        total += RoundTotals.of(full(*group))
    assert total.tau == 2.5
    assert total.accepted / total.rounds == 1.5
    assert total.as_sglang == total.as_vllm == 2.5
    assert total.drafted_by_position == (4, 4, 4)
    assert total.accepted_by_position == (3, 2, 1)


def test_the_converters_differ_where_the_engines_do() -> None:
    """For vLLM: drafting rounds, drafts behind a stop too. For SGLang: what came out in every round.

    Catches a conversion that is right only where every round drafts and none is cut.
    """
    rounds = [
        *full(3),
        record(horizon=0, drafted=0, accepted=0, emitted=1),
        record(horizon=3, drafted=0, accepted=0, emitted=1),  # a look-up that found nothing
        record(horizon=4, drafted=4, accepted=4, emitted=2),  # cut by a stop
    ]
    total = RoundTotals.of(rounds)
    assert total.rounds_without_drafts == 2
    assert total.as_vllm == 1 + (3 + 4) / 2
    assert total.as_sglang == total.tau == (4 + 1 + 1 + 2) / 4
    assert total.accepted_emitted == 3 + 2
    assert total.mean_horizon == 10 / 4


def test_seconds_add_up_by_phase() -> None:
    """Catches a phase that is left out or counted twice."""
    total = RoundTotals.of(full(3, 2))
    assert total.seconds == pytest.approx(2 * 15 * 0.01)
    assert total.tokens_per_second == pytest.approx(7 / 0.3)
    assert sum(one.seconds.total for one in full(3, 2)) == pytest.approx(total.seconds)


def test_nothing_has_no_ratios() -> None:
    """Catches a division by zero, or a 0 that looks like a measurement."""
    total = RoundTotals()
    assert (total.tau, total.as_vllm, total.as_sglang, total.mean_horizon, total.tokens_per_second) == (None,) * 5
    assert RoundTotals.of([record(horizon=0, drafted=0, accepted=0, emitted=1)]).as_vllm is None


def test_tau_of_an_answer_leaves_the_prefill_token_out() -> None:
    """Catches a first token that is counted as if a round had made it."""
    target = successor_target({t: (t + 1) % 40 for t in range(40)}, vocab_size=40)
    drafter = wrong_at(list(range(40)), lambda place: place == 3, vocab_size=40)
    generation = generate(
        target, [0], drafter=drafter, horizon=4, sampling=SamplingParams(temperature=0.0), max_new_tokens=13
    )
    assert [one.accepted for one in generation] == [2, 2, 2, 2]
    assert len(generation.token_ids) == 13
    assert generation.totals.tau == 3.0
    assert generation.totals == sum((RoundTotals.of([one]) for one in generation), RoundTotals())


def test_a_look_up_without_a_match_is_a_round_without_drafts() -> None:
    """Catches vLLM's figure being spread over rounds in which nothing was drafted."""
    target = successor_target({t: (t + 1) % 5 for t in range(5)}, vocab_size=5)
    generation = generate(
        target, [0], drafter=PromptLookup(5), horizon=2, sampling=SamplingParams(temperature=0.0), max_new_tokens=11
    )
    assert [one.drafted for one in generation] == [0, 0, 0, 0, 2, 2]  # 0 stands twice once five tokens are there
    assert [one.choice.horizon for one in generation] == [2] * 6
    assert generation.totals.rounds_without_drafts == 4
    assert generation.totals.as_vllm == 3.0
