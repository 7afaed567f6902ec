"""The state behind the adaptive schedule: what it measures, that it never falls, that it can be stopped and resumed."""

import json
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from forerun.errors import ForerunError
from forerun.losses import AcceptanceHistory, MaskedSum, adaptive_beta, masked_sum


def observed(acceptance: float) -> MaskedSum:
    return MaskedSum(total=torch.tensor(acceptance, dtype=torch.float64), count=torch.tensor(1))


def course(curve: Callable[[int], float], updates: int, *, prior_updates: int = 0) -> list[float]:
    """Beta after each update of a run whose acceptance follows ``curve``."""
    history = AcceptanceHistory(prior_updates=prior_updates)
    betas = []
    for update in range(updates):
        history.observe(observed(curve(update)))
        betas.append(adaptive_beta(history.settled))
    return betas


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=60))
def test_beta_never_falls(acceptances: list[float]) -> None:
    """Whatever is measured, collapse included. Catches annealing that runs backwards after a bad batch."""
    betas = course(lambda update: acceptances[update], len(acceptances))
    assert betas == sorted(betas)
    assert all(0.0 <= beta <= 1.0 for beta in betas)


def test_coverage_first_while_acceptance_grows() -> None:
    """Steady growth to the end of any run keeps beta near 0: nothing has settled."""
    for updates in (100, 1000):
        assert max(course(lambda update, total=updates: update / total, updates)) < 0.15  # type: ignore[misc]


@pytest.mark.parametrize("level", [0.15, 0.4, 0.9])
def test_settles_at_whatever_level(level: float) -> None:
    """The documented course of 1 - e^(-t/T), at any height. Catches a threshold that a weak drafter never reaches."""
    time = 60
    betas = course(lambda update: level * (1 - math.exp(-update / time)), 12 * time)
    if level > 0.3:  # the weakest one counts as cold at first
        assert betas[2 * time] == pytest.approx(0.39, abs=0.08)
        assert betas[5 * time] == pytest.approx(0.77, abs=0.06)
    assert betas[-1] == 1.0


def test_course_depends_on_the_shape_not_on_the_length() -> None:
    """No clock but the run's own: ten times the updates, the same beta at the same share of the run."""
    short, long = (course(lambda u, t=total: 1 - math.exp(-10 * u / t), total) for total in (150, 1500))  # type: ignore[misc]
    for share in (0.1, 0.25, 0.5, 0.75, 1.0):
        assert short[int(share * 150) - 1] == pytest.approx(long[int(share * 1500) - 1], abs=0.05)


def test_a_cold_draft_never_settles() -> None:
    """Learning-rate warm-up: a flat 1 % is no plateau. Catches a run that leaves coverage before it has begun."""
    assert course(lambda update: 0.01, 1000)[-1] == 0.0


def test_a_good_start_gets_a_coverage_phase_of_its_own() -> None:
    """Fine-tuning: flat from the start; beta leaves 0 at prior_updates and is 1 at nine times as many."""
    betas = course(lambda update: 0.6, 500, prior_updates=50)
    assert betas[48] == 0.0 and betas[51] > 0.0
    assert betas[440] < 1.0 and betas[455] == 1.0


def test_a_collapse_does_not_look_like_a_plateau() -> None:
    """Acceptance that falls after a bad update must not push beta to 1: the best recent level is what counts."""
    growing = course(lambda update: update / 400, 200)
    fallen = course(lambda update: update / 400 if update < 200 else 0.02, 220)
    assert fallen[-1] <= growing[-1] + 1e-9


def test_stop_and_extend() -> None:
    """A run that is saved, reloaded and extended is the run that was never stopped, to the last bit, through JSON."""

    def curve(update: int) -> float:
        return 0.7 * (1 - math.exp(-update / 30)) + 0.02 * math.sin(update)

    whole, first = AcceptanceHistory(prior_updates=5), AcceptanceHistory(prior_updates=5)
    for update in range(100):
        whole.observe(observed(curve(update)))
        first.observe(observed(curve(update)))
    second = AcceptanceHistory(prior_updates=5)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for update in range(100, 400):
        whole.observe(observed(curve(update)))
        second.observe(observed(curve(update)))
        assert second.state_dict() == whole.state_dict()
    assert 0 < adaptive_beta(first.settled) < adaptive_beta(second.settled) == 1.0


def test_cut_of_the_batch_does_not_matter() -> None:
    """One batch, or micro-batches of unequal size whose sums are added. Catches a mean of means."""
    generator = torch.Generator().manual_seed(0)
    whole, cut = AcceptanceHistory(), AcceptanceHistory()
    for _ in range(50):
        values = torch.rand(12, 4, dtype=torch.float64, generator=generator)
        mask = torch.rand(12, 4, generator=generator) < 0.7
        whole.observe(masked_sum(values, mask))
        cut.observe(
            masked_sum(values[:3], mask[:3]) + masked_sum(values[3:4], mask[3:4]) + masked_sum(values[4:], mask[4:])
        )
    assert cut.settled == pytest.approx(whole.settled, rel=1e-12)


def test_smaller_batches_take_the_same_course() -> None:
    """Four times as many updates of a quarter of the batch: the same beta up to sampling noise.

    Seeds 0..3; standard deviation 0.05 for small batches, 0.025 for large ones; beta at three times, within 0.1.
    """
    for seed in range(4):
        noise = torch.randn(800, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 0.05
        pooled = noise.view(200, 4).mean(-1)

        def curve(share: float, error: torch.Tensor) -> float:
            return 0.6 * (1 - math.exp(-10 * share)) + float(error)

        fine = course(lambda update, n=noise: curve(update / 800, n[update]), 800, prior_updates=40)  # type: ignore[misc]
        coarse = course(lambda update, n=pooled: curve(update / 200, n[update]), 200, prior_updates=10)  # type: ignore[misc]
        gaps = [abs(fine[4 * update - 1] - coarse[update - 1]) for update in (50, 100, 200)]
        assert max(gaps) < 0.1, (seed, gaps)


def test_no_valid_position_is_no_observation() -> None:
    history = AcceptanceHistory()
    history.observe(observed(0.5))
    before = history.state_dict()
    history.observe(MaskedSum(total=torch.tensor(0.0), count=torch.tensor(0)))
    assert history.state_dict() == before


def test_wrong_use() -> None:
    with pytest.raises(ForerunError, match="acceptance of update 0 is nan"):
        AcceptanceHistory().observe(observed(math.nan))
    with pytest.raises(ForerunError, match="prior_updates is -1"):
        AcceptanceHistory(prior_updates=-1)
    for start, full in ((0.9, 0.5), (0.5, 0.5), (-0.1, 0.5), (0.5, 1.1)):
        with pytest.raises(ForerunError, match="start is"):
            adaptive_beta(0.5, start=start, full=full)
    with pytest.raises(KeyError):
        AcceptanceHistory().load_state_dict({"beta": 1.0})
