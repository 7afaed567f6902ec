"""The regret harness runs the shipped learner, and its world is what the analysis asks for."""

import numpy as np
import pytest

from forerun.evaluation.simulator.theory import CHUNK, NUM_FEATURES, TheorySetting, _true_hazards, theory_runs
from forerun.horizons import best_horizon, gains, survivals
from forerun.horizons.evidence import Evidence
from forerun.horizons.linear_hazards import Linear

SETTING = TheorySetting()
ROUNDS, SEED, PATH = 400, 5, 0.6


@pytest.mark.parametrize("partial", [False, True], ids=["full", "partial"])
@pytest.mark.usefixtures("unchecked_shapes")
def test_the_vectorised_learner_is_the_shipped_one(partial: bool) -> None:
    """Round by round in plain Python with ``LinearHazards``, ``best_horizon`` and evidence written by the definition.

    Catches a wrong importance weight, a projection around another centre, a plan that sees the coin, a lost round.
    """
    runs = theory_runs(SETTING, rounds=ROUNDS, path_lengths=np.array([PATH]), partial=np.array([partial]), seed=SEED)
    epsilon, step = SETTING.rates(ROUNDS, PATH, partial=partial)
    learner = Linear(radius=SETTING.radius, step=step).start(
        num_features=NUM_FEATURES, position_feature=False, prior_hazards=(SETTING.prior,)
    )
    random = np.random.default_rng([SEED, ROUNDS])
    window, costs = len(SETTING.centres), SETTING.costs.tolist()
    assert ROUNDS <= CHUNK
    features = np.ones((ROUNDS, 1, 1 + NUM_FEATURES))
    features[..., 1:] = random.uniform(-1.0, 1.0, (ROUNDS, 1, NUM_FEATURES))
    hazards = _true_hazards(SETTING, features, np.arange(ROUNDS), ROUNDS, np.array([PATH]))[:, 0]
    numbers, coins = random.random((ROUNDS, 1, window))[:, 0], random.random((ROUNDS, 1))[:, 0]
    regret = tokens = seconds = 0.0
    for x, true, number, coin in zip(features[:, 0, 1:].tolist(), hazards.tolist(), numbers, coins, strict=True):
        plan = best_horizon(learner.predict(x, window), costs).horizon
        drafted = window if coin < epsilon else plan
        seen = drafted if partial else window
        bits = [bool(draw < hazard) for draw, hazard in zip(number, true, strict=True)]
        accepted = bits.index(True) if True in bits else window
        reached = min(accepted + 1, seen)
        learner.update(
            x,
            Evidence.weighted(
                [1.0] * reached,
                [float(bit) for bit in bits[:reached]],
                [1.0 if position <= plan or not partial else 1.0 / epsilon for position in range(1, reached + 1)],
            ),
        )
        rates = [gain / cost for gain, cost in zip(gains(survivals(true)), costs, strict=True)]
        regret += max(rates) - rates[drafted]
        tokens += 1 + min(accepted, drafted)
        seconds += costs[drafted]
    assert runs.regret[0] == pytest.approx(regret, rel=1e-9)
    assert runs.tokens[0] == tokens and runs.seconds[0] == pytest.approx(seconds)


def test_parameters_travel_as_far_as_they_say() -> None:
    """The comparator's path has the length P that the rates are made for; all hazards stay inside (0, 1)."""
    features = np.ones((4001, 1, 1 + NUM_FEATURES))
    features[..., 1:] = 0.0
    biases = _true_hazards(SETTING, features, np.arange(4001), 4000, np.array([3.0]))[:, 0]
    steps = np.diff(biases, axis=0)
    assert np.sqrt((steps**2).sum(axis=1)).sum() == pytest.approx(3.0, rel=1e-3)
    assert np.abs(biases - np.array(SETTING.centres)).max() == pytest.approx(SETTING.swing, rel=1e-2)
    corner = sum(map(abs, SETTING.slopes)) + SETTING.swing
    assert min(SETTING.centres) - corner > 0.0 and max(SETTING.centres) + corner < 1.0


@pytest.mark.usefixtures("unchecked_shapes")
def test_the_speedup_bound_holds_on_every_run_and_regret_falls_behind_time() -> None:
    """Eight runs of each kind: a bound with the regret forgotten, or with the largest optimum, breaks."""
    partial = np.arange(16) >= 8
    short, long = (
        theory_runs(SETTING, rounds=rounds, path_lengths=np.full(16, 0.5), partial=partial, seed=1)
        for rounds in (200, 2000)
    )
    for runs in (short, long):
        assert (runs.speedup(SETTING) >= runs.speedup_bound(SETTING)).all()
    assert (long.regret < 10 * short.regret).all()
