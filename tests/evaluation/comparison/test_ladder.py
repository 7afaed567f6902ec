"""The feature ladder: scores by definition, the same rounds for all, and predictions made before they are learned."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from forerun.errors import ForerunError
from forerun.evaluation.comparison import (
    PolicyFactory,
    Predictions,
    Scene,
    WholeWindow,
    auc,
    calibration,
    climb,
    joined,
    prediction_scores,
    predictions,
    with_draft_margins,
)
from forerun.evaluation.replay import replay
from forerun.evaluation.simulator import Curve, HazardWorld, IndependentDifficulty
from forerun.horizons import AMTP, CostTable, FeatureLevel, FixedHorizon

COSTS = Curve(label="steep", draft_per_token=0.003)
DEAR = CostTable.from_profile([(0, 1.0), (1, 50.0), (8, 400.0)])
WORLD = HazardWorld(difficulty=IndependentDifficulty(), answer_tokens=100)


def test_auc_is_the_share_of_pairs_in_order() -> None:
    """Against all pairs, ties counting half. Catches ties given to one side, and weights of one kind only."""
    rng = random.Random(3)
    scores = [rng.randrange(6) / 4 for _ in range(40)]
    positive = [rng.random() < 0.3 + 0.1 * score for score in scores]
    weights = [rng.randrange(4) for _ in scores]
    won = pairs = 0.0
    for i in range(40):
        for j in range(40):
            if positive[i] and not positive[j]:
                share = weights[i] * weights[j]
                pairs += share
                won += share * (1.0 if scores[i] > scores[j] else 0.5 if scores[i] == scores[j] else 0.0)
    found = auc(np.array(scores), np.array(positive), np.array(weights, dtype=np.float64))
    assert found == pytest.approx(won / pairs)
    assert math.isnan(auc(np.ones(2), np.ones(2, dtype=np.bool_), np.ones(2)))


def made_up(survivals: list[list[float]], accepted: list[int], tracks: list[int]) -> Predictions:
    """Rounds of two positions."""
    return Predictions(
        tracks=np.array(tracks), counted=np.ones((len(tracks), 2), dtype=np.bool_), survivals=np.array(survivals),
        accepted=np.array(accepted), prefix_weights=np.tile([1.0, 0.6], (len(tracks), 1)),
        mismatches=np.tile([0.4, 0.7], (len(tracks), 1)), true_survivals=np.tile([0.5, 0.25], (len(tracks), 1)),
    )  # fmt: skip


def test_scores_by_hand() -> None:
    """Three rounds. Reached: all first drafts, and second ones behind a first that stood.

    Hazards (1/2, 1/2), (1/4, 2/3), (1/2, 0); stood at: (yes, no), (yes, yes), (no). Of the reached ones in order of
    1 - h: 0.75 yes, 0.5 yes, 0.5 no, 0.5 no, 1/3 yes. Catches positions behind a rejection, and scores by survival.
    """
    good = made_up([[0.5, 0.25], [0.75, 0.25], [0.5, 0.5]], [1, 2, 0], [0, 0, 1])
    flat = made_up([[0.5, 0.25]] * 3, [1, 2, 0], [0, 0, 1])
    found = prediction_scores({"flat": flat, "good": good}, seed=0)
    assert found["good"].auc.estimate == pytest.approx((2 + 1 + 0) / 6)
    assert found["good"].auc_first.estimate == pytest.approx((1 + 0.5) / 2)
    assert found["flat"].auc.estimate == pytest.approx(0.5) and found["flat"].auc_gain.estimate == 0.0
    assert found["good"].auc_gain.estimate == pytest.approx(0.0)
    squares = [0.25, 0.0625, 0.0625, 0.5625, 0.25, 0.25]
    assert found["good"].brier.estimate == pytest.approx(sum(squares) / 6)
    # bins: 0.2s hold 1/4 twice, once true; the 5s 0.5 three times, once true; 0.7s 0.75, true
    assert found["good"].ece.estimate == pytest.approx((abs(0.5 - 1) + abs(1.5 - 1) + 0.25) / 6)
    errors = [0.0, 1 / 16 + 0.5 / 36, 0.5 / 4]
    assert found["good"].hazard_error is not None
    assert found["good"].hazard_error.estimate == pytest.approx(sum(errors) / 3)
    soft = [0.1**2 + 0.6 * 0.2**2, 0.15**2 + 0.6 * (2 / 3 - 0.7) ** 2, 0.1**2 + 0.6 * 0.7**2]
    assert found["good"].soft_error.estimate == pytest.approx(sum(soft) / 3)
    assert (found["good"].rounds, found["good"].positions, found["good"].brier.num_answers) == (3, 6, 2)
    # one answer has 15/64, the other 1/4, and a quarter of the resamples holds one of them only
    assert (found["good"].brier.low, found["good"].brier.high) == pytest.approx((15 / 64, 1 / 4))


def scene(tokens: int = 1000) -> Scene:
    return Scene(world="w", regime="r", seed=0, texts=0, tracks=WORLD.tracks(tokens, seed=1), costs=COSTS)


def rung(level: FeatureLevel) -> PolicyFactory:
    return lambda costs: AMTP(costs=costs, features=level, warmup_rounds=0)


@pytest.mark.usefixtures("unchecked_shapes")
def test_all_predictors_face_the_same_rounds() -> None:
    """Every rung visits the same positions, and margins of the draft laws tell most in this world, then its signal.

    Catches a rung that walks by its own horizons, and margins that nobody hands over.
    """
    found = climb(scene(1000), {name: rung(FeatureLevel(name)) for name in ("F0", "F2", "F4")})
    first = found.predicted["F0"]
    for own in found.predicted.values():
        assert np.array_equal(own.tracks, first.tracks) and np.array_equal(own.accepted, first.accepted)
    scores = prediction_scores(found.predicted, seed=0)
    assert scores["F4"].auc.estimate > scores["F2"].auc.estimate + 0.02 > scores["F0"].auc.estimate + 0.08
    assert all(each.median > 0.0 and each.blocks >= 2 for each in found.microseconds.values())
    with pytest.raises(ForerunError, match="predicts no survivals"):
        climb(scene(), {"fixed": lambda _: FixedHorizon(2)})


@pytest.mark.usefixtures("unchecked_shapes")
def test_predictions_come_before_learning_and_whole_windows_teach() -> None:
    """The first round is predicted by the prior, whatever came of it; a policy that would draft nothing learns anyway.

    Catches an observation before the proposal, and propensities or plans of the inner policy's own horizon.
    """
    inner = AMTP(costs=DEAR, features=FeatureLevel.F0, warmup_rounds=0, prior_hazards=(0.6,))
    tracks = scene().tracks
    policy = WholeWindow(inner)
    run = replay(policy, tracks, COSTS)
    told = predictions(run, tracks)
    assert told.survivals[0, :3].tolist() == pytest.approx([0.4, 0.16, 0.064])
    steps = [1 + min(accepted, len(tracks[0])) for accepted in told.accepted[:5]]
    assert np.diff(run.positions[:5]).tolist() == steps[:4]
    assert inner.report.effective_sample_sizes[0] == pytest.approx(inner.report.informative)
    assert inner.hazards(tracks[0].contexts[0])[0] < 0.4
    assert all(feedback.choice.propensities == (1.0,) * feedback.drafted for feedback in policy.rounds)


@pytest.mark.usefixtures("unchecked_shapes")
def test_scores_agree_with_calibration_and_runs_join() -> None:
    """Two ways to the same Brier score; joined runs keep their answers apart."""
    tracks = scene().tracks
    run = replay(AMTP(features=FeatureLevel.F1), tracks, COSTS)
    told, found = predictions(run, tracks), calibration(run, tracks)
    scores = prediction_scores({"one": joined([told, told])}, seed=0)["one"]
    assert found is not None
    assert (scores.brier.estimate, scores.ece.estimate) == pytest.approx((found.brier, found.ece))
    assert scores.hazard_error is not None and scores.hazard_error.estimate == pytest.approx(found.hazard_error)
    assert scores.brier.num_answers == 2 * len(tracks) and scores.positions == 2 * found.predictions


def test_draft_margins_are_log_ratios() -> None:
    """Top probability 0.6 with margin 0.4 leaves 0.2 for the second: log 3. Catches margins of probabilities."""
    track = scene().tracks[0]
    token = track.drawn[0][0]
    law = replace(token.law, top_prob=0.6, margin=0.4)
    changed = replace(track, drawn=((replace(token, law=law),), *track.drawn[1:]))
    margins = with_draft_margins(changed).contexts[0].draft_margins
    assert margins == pytest.approx((math.log(3.0),))
