"""Statistics of comparisons against definitions, on runs small enough to count."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import final

import numpy as np
import pytest

from forerun.errors import ForerunError
from forerun.evaluation import speed
from forerun.evaluation.comparison import (
    ComparisonRow,
    PolicyFactory,
    Scene,
    calibration,
    compare,
    recovery_rounds,
    simulated_scenes,
    summarise,
    throughput_ratio,
    throughput_regret,
)
from forerun.evaluation.replay import Replayed, per_context_horizons, rates, replay
from forerun.evaluation.simulator import Curve, HazardWorld, SwitchingDifficulty
from forerun.horizons import AMTP, Choice, CostTable, FixedHorizon, HorizonPolicy, RoundContext, RoundFeedback

COSTS = Curve(label="steep", draft_per_token=0.003)
WORLD = HazardWorld(size=2, answer_tokens=20)


def run_with(predicted: list[list[float]]) -> Replayed:
    """Rounds at the first positions of the first track."""
    size = len(predicted)
    return Replayed(
        policy="made up",
        tracks=np.zeros(size, dtype=np.int64),
        positions=np.arange(size),
        horizons=np.full(size, 1),
        emitted=np.ones(size, dtype=np.int64),
        seconds=np.ones(size),
        predicted=np.array(predicted),
    )


def test_calibration_by_hand() -> None:
    """Four rounds of two positions: Brier, bins and Lemma 1's error counted in fractions.

    Catches outcomes cut at the chosen horizon (the text knows deeper ones), bins without weights, and hazards of
    unweighted positions.
    """
    track = WORLD.tracks(20, seed=0)[0]
    accepted = (2, 0, 1, 2, *track.accepted[4:])
    known = np.tile([0.5, 0.25], (20, 1))
    track = replace(track, accepted=accepted, survivals=known)
    found = calibration(run_with([[0.75, 0.25], [0.75, 0.0], [0.25, 0.25], [1.0, 0.5]]), [track])
    assert found is not None and found.predictions == 8
    outcomes = [(1, 1), (0, 0), (1, 0), (1, 1)]
    half, quarter, one, none = Fraction(1, 2), Fraction(1, 4), Fraction(1), Fraction(0)
    told = [(3 * quarter, quarter), (3 * quarter, none), (quarter, quarter), (one, half)]
    pairs = [(s, a) for row, outcome in zip(told, outcomes, strict=True) for s, a in zip(row, outcome, strict=True)]
    assert found.brier == pytest.approx(float(sum((s - a) ** 2 for s, a in pairs) / 8))
    # bins: 0: one prediction 0, never true; 0.2s: three of 1/4, twice true; 0.5: once, true; 0.7s: two, once; 1: true
    gaps = [none, abs(3 * quarter - 2), half, abs(3 * half - 1), none]
    assert found.ece == pytest.approx(float(sum(gaps) / 8))
    # hazards are 1/2 and 1/2, weights 1 and 1/2; predicted (1/4, 2/3), (1/4, 1), (3/4, 0), (0, 1/2)
    errors = [
        Fraction(1, 16) + Fraction(1, 2) * Fraction(1, 36), Fraction(1, 16) + Fraction(1, 2) * Fraction(1, 4),
        Fraction(1, 16) + Fraction(1, 2) * Fraction(1, 4), Fraction(1, 4) + 0,
    ]  # fmt: skip
    assert found.hazard_error == pytest.approx(float(sum(errors) / 4))


def test_a_policy_that_predicts_nothing_has_no_calibration() -> None:
    tracks = WORLD.tracks(20, seed=0)
    assert calibration(replay(FixedHorizon(1), tracks, COSTS), tracks) is None


@pytest.mark.usefixtures("unchecked_shapes")
def test_regret_is_zero_for_the_oracle_and_adds_up_otherwise() -> None:
    """Round by round from the tables; a regret against the best of another position would go below zero."""
    tracks = HazardWorld(answer_tokens=100).tracks(100, seed=2)
    run = replay(FixedHorizon(3), tracks, COSTS)
    regret = throughput_regret(run, tracks, COSTS)
    table, best = rates(tracks[0], COSTS), per_context_horizons(tracks[0], COSTS)
    for position, horizon, found in zip(run.positions, run.horizons, regret, strict=True):
        assert found == pytest.approx(table[position, best[position]] - table[position, horizon])
    assert regret.min() >= 0.0 and regret[run.horizons == best[run.positions]].max() == 0.0


@pytest.mark.usefixtures("unchecked_shapes")
def test_recovery_counts_from_the_shift() -> None:
    """A run that is always optimal recovers at once (20 rounds of evidence); one that never is counts whole phases."""
    world = HazardWorld(difficulty=SwitchingDifficulty(phase=200, level=3.0, spread=0.1), answer_tokens=100)
    tracks, shifts = world.tracks(600, seed=0), world.shifts(600)
    best = replay(_Told([per_context_horizons(track, COSTS) for track in tracks]), tracks, COSTS)
    assert recovery_rounds(best, tracks, COSTS, shifts) == (20, 20)
    long = replay(FixedHorizon(8), tracks, COSTS)
    hard, easy = recovery_rounds(long, tracks, COSTS, shifts)
    assert easy == 20 and hard > 100


@final
class _Told(HorizonPolicy):
    """Reads its horizons from a table, answer by answer."""

    name = "told"

    def __init__(self, tables: list[np.ndarray]) -> None:
        self._tables = tables
        self._answer = -1
        self._last = 10**9

    def propose(self, context: RoundContext, *, uniform: float) -> Choice:
        if context.generated <= self._last:
            self._answer += 1
        self._last = context.generated
        return FixedHorizon(int(self._tables[self._answer][context.generated - 1])).propose(context, uniform=uniform)

    def observe(self, feedback: RoundFeedback) -> None:
        pass

    def clone(self) -> "_Told":
        return _Told(self._tables)


def test_speed_is_a_ratio_of_sums() -> None:
    """Ten tokens in 1 s and ten in 9 s are 2 tokens/s, not the mean 5.6; two equal answers have no spread."""
    assert speed([10, 10], [1.0, 9.0], seed=0).estimate == 2.0
    same = speed([5, 5], [2.0, 2.0], seed=0)
    assert (same.low, same.estimate, same.high, same.num_answers) == (2.5, 2.5, 2.5, 2)


@pytest.mark.usefixtures("unchecked_shapes")
def test_a_comparison_resumes_and_shares_are_paired(tmp_path: Path) -> None:
    """Rows kept in the journal are not computed again; a torn line is; the oracle's own share is 1."""
    parts = [("ar1", HazardWorld(answer_tokens=60), "steep", COSTS)]
    made: list[str] = []

    def factory(name: str, policy: HorizonPolicy) -> PolicyFactory:
        def make(costs: CostTable) -> HorizonPolicy:
            made.append(name)
            return AMTP(costs=costs) if name == "amtp" else policy.clone()

        return make

    policies = {"amtp": factory("amtp", AMTP()), "2": factory("2", FixedHorizon(2))}

    def rows() -> list[ComparisonRow]:
        scenes = simulated_scenes(parts, num_tokens=120, seeds=2)
        return compare(scenes, policies, journal=tmp_path / "rows", on_row=lambda _: None)

    first = rows()
    assert made == ["amtp", "2"] * 2
    assert rows() == first and made == ["amtp", "2"] * 2
    text = (tmp_path / "rows").read_text()
    (tmp_path / "rows").write_text(text[:-30])
    assert rows() == first and made[4:] == ["2"]
    (tmp_path / "rows").write_text("{}\n")
    with pytest.raises(ForerunError, match="no journal"):
        rows()
    (scene,) = summarise(first)
    entries = {entry["policy"].split(" (")[0]: entry for entry in scene["entries"]}
    assert entries["per context"]["share"]["estimate"] == 1.0 and entries["per context"]["share"]["num_pairs"] == 4
    amtp, oracle = ([row for row in first if row.policy == name] for name in ("amtp", "per context"))
    speeds = [
        sum(n for row in own for n in row.emitted) / sum(n for row in own for n in row.seconds)
        for own in (amtp, oracle)
    ]
    assert entries["amtp"]["share"]["estimate"] == pytest.approx(speeds[0] / speeds[1])
    assert entries["amtp"]["mean_regret"] > 0.0 and entries["2"]["brier"] is None


def test_scenes_of_a_seed_are_the_same_for_every_policy() -> None:
    one, two = (next(iter(simulated_scenes([("w", WORLD, "r", COSTS)], num_tokens=20, seeds=1))) for _ in range(2))
    assert isinstance(one, Scene) and one.tracks[0].coins == two.tracks[0].coins


def test_other_coins_are_no_other_answers() -> None:
    """Two answers under three seeds of the coins are two pairs; as texts of their own they are six.

    Catches intervals that are too narrow by the root of the number of seeds.
    """
    rows = [
        ComparisonRow(
            world="w", regime="r", seed=seed, texts=0, policy="p", oracle=False, emitted=(10, 20),
            seconds=(1.0 + seed, 2.0), settled=0,
        )
        for seed in range(3)
    ]  # fmt: skip
    plain = [replace(row, seconds=(4.0, 4.0)) for row in rows]
    same = throughput_ratio(rows, plain)
    assert same is not None and same["num_pairs"] == 2
    assert same["estimate"] == pytest.approx(90 / 12 / (90 / 24))
    apart = throughput_ratio(*([replace(row, texts=row.seed) for row in own] for own in (rows, plain)))
    assert apart is not None and apart["num_pairs"] == 6 and apart["estimate"] == pytest.approx(same["estimate"])
    assert apart["high"] - apart["low"] != pytest.approx(same["high"] - same["low"])
