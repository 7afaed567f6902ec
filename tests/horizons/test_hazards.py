"""The logistic hazard model: prediction, gradient, steps, saved state."""

import json
import math

import pytest

from forerun.errors import ForerunError
from forerun.horizons.evidence import Evidence
from forerun.horizons.hazards import LogisticHazards
from forerun.horizons.learner import HAZARD_MIN

ROUNDING = 1e-15  # sigmoid of the clipped log-odds
FEATURES = (0.5, -1.0, 0.25)
ITEMS = Evidence.of([(1.0, 0.0, 1.0), (0.7, 0.3, 1.0), (0.4, 1.0, 10.0)])


def trained() -> LogisticHazards:
    model = LogisticHazards(num_features=3, prior_hazards=(0.2, 0.4), learning_rate=0.5)
    for _ in range(3):
        model.update(FEATURES, ITEMS)
    return model


def loss(logits: list[float]) -> float:
    """Survival-weighted log loss by its definition."""
    total = 0.0
    for item, logit in zip(ITEMS.items(), logits, strict=True):
        hazard = 1.0 / (1.0 + math.exp(-logit))
        entropy = item.label * math.log(hazard) + (1.0 - item.label) * math.log(1.0 - hazard)
        total -= item.importance * item.weight * entropy
    return total


def test_prior() -> None:
    """The last prior serves deeper positions; features do not count before anything was learned."""
    model = LogisticHazards(num_features=3, prior_hazards=(0.2, 0.4), learning_rate=0.5)
    assert model.predict(FEATURES, 4) == pytest.approx([0.2, 0.4, 0.4, 0.4])
    assert model.predict(FEATURES, 0) == []


def test_gradient_against_finite_differences() -> None:
    """Catches a missing weight or importance, and a gradient of another loss."""
    model = trained()
    shared = sum(a * b for a, b in zip(model.slopes, FEATURES, strict=True))
    logits = [bias + shared for bias in model.biases]
    step = 1e-5
    for index, slope in enumerate(model.gradient(FEATURES, ITEMS)):
        above = [logit + step * (i == index) for i, logit in enumerate(logits)]
        below = [logit - step * (i == index) for i, logit in enumerate(logits)]
        assert slope == pytest.approx((loss(above) - loss(below)) / (2.0 * step), abs=1e-7)


def test_one_step() -> None:
    """AdaGrad by hand, sums of squares from 1; slopes share the gradients of all positions."""
    model = LogisticHazards(num_features=1, prior_hazards=(0.5,), learning_rate=0.5)
    model.update((2.0,), Evidence.of([(1.0, 0.0, 1.0), (0.5, 1.0, 4.0)]))
    assert model.biases == pytest.approx((-0.5 * 0.5 / math.sqrt(1.25), 0.5 * 1.0 / math.sqrt(2.0)))
    assert model.slopes == pytest.approx((0.5 * 1.0 / math.sqrt(2.0),))


def test_hazards_stay_inside_the_clip_and_come_back() -> None:
    """A position that always rejects must not drift off to where it takes forever to return."""
    model = LogisticHazards(num_features=0, prior_hazards=(0.5,), learning_rate=0.5)
    for _ in range(5000):
        model.update((), Evidence.of([(1.0, 1.0, 1.0)]))
        assert model.predict((), 1)[0] <= 1.0 - HAZARD_MIN + ROUNDING
    assert model.biases[0] < 7.5  # the clip is at 6.9
    for _ in range(100):
        model.update((), Evidence.of([(1.0, 0.0, 1.0)]))
    assert model.predict((), 1)[0] < 0.5


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_at_the_clip_only_the_way_back_is_open(label: float) -> None:
    """Catches log-odds that creep outwards for ever, 0.001 at a time, while every prediction looks the same."""
    prior = 1.0 - HAZARD_MIN if label else HAZARD_MIN
    model = LogisticHazards(num_features=1, prior_hazards=(prior,), learning_rate=0.5)
    model.update((1.0,), Evidence.of([(1.0, label, 1.0)]))  # log of 0.999 / 0.001 may round to just inside the clip
    before = model.predict((1.0,), 1), model.state_dict()
    model.update((1.0,), Evidence.of([(1.0, label, 1.0)]))
    assert (model.predict((1.0,), 1), model.state_dict()) == before
    model.update((1.0,), Evidence.of([(1.0, 1.0 - label, 1.0)]))
    assert abs(model.predict((1.0,), 1)[0] - label) > abs(prior - label)


def test_extreme_features_do_not_overflow() -> None:
    model = trained()
    for scale in (1e6, -1e6):
        hazards = model.predict([scale * feature for feature in FEATURES], 3)
        assert all(abs(hazard - 0.5) <= 0.5 - HAZARD_MIN + ROUNDING for hazard in hazards)


def test_saved_state_continues_identically() -> None:
    model = trained()
    again = LogisticHazards(num_features=3, prior_hazards=(0.2, 0.4), learning_rate=0.5)
    again.load_state_dict(json.loads(json.dumps(model.state_dict())))
    for one in (model, again):
        one.update(FEATURES, ITEMS)
    assert again.state_dict() == model.state_dict()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"extra": 1}, "unknown keys"),
        ({"slopes": [0.0]}, "features"),
        ({"biases": [0.0]}, "squares"),
        ({"bias_squares": [1.0, math.nan, 1.0]}, "finite"),
        ({"bias_squares": [1.0, 0.0, 1.0]}, "above 0"),
        ({"biases": "abc"}, "list"),
    ],
)
def test_broken_state_is_refused(change: dict[str, object], message: str) -> None:
    model = trained()
    before = model.state_dict()
    with pytest.raises(ForerunError, match=message):
        model.load_state_dict({**before, **change})
    assert model.state_dict() == before
