"""What a round says: labels, weights, censoring, importance."""

import pytest

from forerun.errors import ForerunError
from forerun.horizons import Choice, RoundContext, RoundFeedback
from forerun.horizons.evidence import accept_bits, evidence, expected_bits
from forerun.horizons.exploration import EffectiveSampleSize, propensities
from forerun.horizons.history import AcceptanceHistory

CONTEXT = RoundContext(limit=4, context_length=10, generated=1, temperature=1.0)


def feedback(
    accepted: int,
    *,
    planned: int = 4,
    explored: bool = False,
    epsilon: float = 0.02,
    censored: int | None = None,
    accept_probabilities: tuple[float, ...] | None = None,
    overlaps: tuple[float, ...] | None = None,
) -> RoundFeedback:
    horizon = 4 if explored else planned
    return RoundFeedback(
        choice=Choice(
            horizon=horizon, planned=planned, explored=explored, propensities=propensities(planned, 4, epsilon)
        ),
        context=CONTEXT,
        accepted=accepted,
        accept_probabilities=(0.5,) * horizon if accept_probabilities is None else accept_probabilities,
        overlaps=(0.75,) * horizon if overlaps is None else overlaps,
        seconds=0.1,
        censored=censored,
    )


def test_censored_labels() -> None:
    """C38. Catches a label for positions after the rejection, beyond the draft, or after the end of the text."""
    assert accept_bits(feedback(2)) == ([1.0, 1.0, 1.0], [0.0, 0.0, 1.0])
    assert accept_bits(feedback(4)) == ([1.0] * 4, [0.0] * 4)
    for cut in (feedback(4, censored=2), feedback(2, censored=2), feedback(2, planned=2)):
        assert accept_bits(cut) == ([1.0] * 2, [0.0] * 2)
    assert accept_bits(feedback(0, censored=2)) == ([1.0], [1.0])
    assert accept_bits(feedback(0, planned=0)) == ([], [])


def test_expected_labels() -> None:
    """Catches a weight that includes its own position, and labels that use the accept probability of the token."""
    round_ = feedback(0, accept_probabilities=(0.5, 0.25, 0.0, 1.0), overlaps=(0.75, 0.5, 0.25, 1.0))
    assert expected_bits(round_) == ([1.0, 0.5, 0.125], [0.25, 0.5, 0.75])
    cut = feedback(0, censored=2, accept_probabilities=(0.5, 0.25, 0.0, 1.0), overlaps=(0.75, 0.5, 0.25, 1.0))
    assert expected_bits(cut) == ([1.0, 0.5], [0.25, 0.5])


@pytest.mark.parametrize("soft", [False, True])
def test_importance_weights(soft: bool) -> None:
    """C38: epsilon 0.1, planned 1. Catches 1 / epsilon missing, or spread over the planned positions too."""
    explored = evidence(feedback(4, planned=1, explored=True, epsilon=0.1), soft=soft, importance_clip=20.0)
    assert explored.importances == [1.0, 10.0, 10.0, 10.0]
    usual = evidence(feedback(1, planned=1, epsilon=0.1), soft=soft, importance_clip=20.0)
    assert usual.importances == [1.0]
    clipped = evidence(feedback(4, planned=1, explored=True, epsilon=0.02), soft=soft, importance_clip=20.0)
    assert clipped.importances == [1.0, 20.0, 20.0, 20.0]


def test_effective_sample_size() -> None:
    """Kish on 9 rounds of weight 1 and one of weight 10: 19^2 / 109. Catches a plain count of rounds."""
    sizes = EffectiveSampleSize()
    for _ in range(9):
        sizes.observe(evidence(feedback(2, planned=2, epsilon=0.1), soft=False, importance_clip=20.0))
    sizes.observe(evidence(feedback(4, planned=1, explored=True, epsilon=0.1), soft=False, importance_clip=20.0))
    assert sizes.sizes == pytest.approx((10.0, 19.0**2 / 109.0, 1.0, 1.0))


def test_a_drafter_may_run_out() -> None:
    """A lookup that found two tokens of four: positions 3 and 4 are absent, not accepted and not rejected."""
    short = feedback(2, accept_probabilities=(1.0, 1.0), overlaps=(1.0, 1.0))
    assert short.drafted == 2
    assert accept_bits(short) == ([1.0] * 2, [0.0] * 2)


def test_contradictions_are_refused() -> None:
    with pytest.raises(ForerunError, match="5 tokens accepted of 4"):
        feedback(5)
    with pytest.raises(ForerunError, match="one of each"):
        feedback(0, overlaps=(1.0,))
    with pytest.raises(ForerunError, match="one of each"):
        feedback(0, planned=1, accept_probabilities=(1.0, 1.0), overlaps=(1.0, 1.0))
    with pytest.raises(ForerunError, match="5 positions count"):
        feedback(0, censored=5)
    with pytest.raises(ForerunError, match="seconds"):
        RoundFeedback(
            choice=feedback(0).choice,
            context=CONTEXT,
            accepted=0,
            accept_probabilities=(),
            overlaps=(),
            seconds=0.0,
        )
    with pytest.raises(ForerunError, match="negative"):
        RoundContext(limit=-1, context_length=0, generated=0, temperature=1.0)
    with pytest.raises(ForerunError, match="finite"):
        RoundContext(limit=1, context_length=0, generated=0, temperature=1.0, target_entropy=float("nan"))


def test_history_and_promotion() -> None:
    """Cut rounds never promote (the ratchet of llama.cpp 27210), rounds without drafts change nothing."""
    history = AcceptanceHistory()

    def see(round_: RoundFeedback) -> tuple[int | None, bool | None]:
        history.observe(round_, evidence(round_, soft=False, importance_clip=20.0))
        return history.last_reject, history.corrected

    assert see(feedback(0, planned=0)) == (None, None)
    assert history.rounds == 0
    assert see(feedback(2)) == (3, True)
    assert history.fast == pytest.approx(2.0 / 3.0)
    assert see(feedback(4, censored=3)) == (3, True)  # every counted token accepted, yet no promotion
    assert history.fast == pytest.approx((2.0 / 3.0 + 1.0) / 2.0)  # the accepted tokens themselves do count
    assert see(feedback(4)) == (5, False)
    assert see(feedback(0, planned=0)) == (5, False)
    assert history.rounds == 3
    for _ in range(100):
        see(feedback(0))
    # 100 rounds of rate 0: fast is down to nothing, slow still decays at 0.03 a round once n > 1 / 0.03
    assert history.fast is not None and history.fast < 1e-12
    assert history.slow is not None and 0.005 < history.slow < 0.05
