"""One controller or oracle on one set of texts under one cost regime: a flat row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from forerun.evaluation.comparison.calibration import Calibration, calibration
from forerun.evaluation.comparison.regret import recovery_rounds, throughput_regret
from forerun.evaluation.replay import (
    CostRegime,
    OracleRun,
    Track,
    best_fixed,
    clairvoyant,
    clairvoyant_per_round,
    per_context,
    per_context_renewal,
    per_signal,
    replay,
)
from forerun.horizons import HorizonPolicy

SETTLED_ROUNDS = 5_000
"""From here on a controller has had its time to learn."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Texts and costs that all controllers face.

    Attributes:
        world: name.
        regime: name.
        seed: of the texts, or of the coins on recorded ones.
        texts: which texts they are; scenes with the same texts differ in coins only and are one sample of answers.
        tracks: the texts.
        costs: of rounds.
        shifts: token counts at which the law of the texts jumps.
    """

    world: str
    regime: str
    seed: int
    texts: int
    tracks: tuple[Track, ...]
    costs: CostRegime
    shifts: tuple[int, ...] = ()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow:
    """Raw counts of one controller or oracle in one scene.

    Attributes:
        world: of the scene.
        regime: of the scene.
        seed: of the scene.
        texts: of the scene.
        policy: name.
        oracle: it knows what no controller can.
        emitted: tokens of each track.
        seconds: of each track.
        settled: index of the first track that begins after 5,000 rounds; ``None`` where there is none, 0 for oracles.
        rounds: in all.
        mean_horizon: of them.
        mean_regret: per round against the per-context oracle, in tokens per second; an estimate where the survivals are
            one; ``None`` where nothing is known of them.
        recovery: rounds to recover after each shift.
        calibration: of predicted survivals.
    """

    world: str
    regime: str
    seed: int
    texts: int
    policy: str
    oracle: bool
    emitted: tuple[int, ...]
    seconds: tuple[float, ...]
    settled: int | None
    rounds: int | None = None
    mean_horizon: float | None = None
    mean_regret: float | None = None
    recovery: tuple[int, ...] = ()
    calibration: Calibration | None = None


def policy_row(name: str, policy: HorizonPolicy, scene: Scene) -> ComparisonRow:
    """Replay a policy that has learned nothing yet.

    Args:
        name: for tables.
        policy: is changed.
        scene: texts and costs.
    """
    tracks, costs = scene.tracks, scene.costs
    run = replay(policy, tracks, costs)
    known = tracks[0].survivals is not None
    first_rounds = np.searchsorted(run.tracks, np.arange(len(tracks)))
    settled = np.flatnonzero(first_rounds >= SETTLED_ROUNDS)
    return ComparisonRow(
        world=scene.world,
        regime=scene.regime,
        seed=scene.seed,
        texts=scene.texts,
        policy=name,
        oracle=False,
        emitted=tuple(np.bincount(run.tracks, run.emitted, len(tracks)).astype(int).tolist()),
        seconds=tuple(np.bincount(run.tracks, run.seconds, len(tracks)).tolist()),
        settled=int(settled[0]) if len(settled) else None,
        rounds=len(run),
        mean_horizon=float(run.horizons.mean()),
        mean_regret=float(throughput_regret(run, tracks, costs).mean()) if known else None,
        recovery=recovery_rounds(run, tracks, costs, scene.shifts) if known and scene.shifts else (),
        calibration=calibration(run, tracks),
    )


def oracle_rows(scene: Scene) -> Iterator[ComparisonRow]:
    """The oracles that the scene allows for, from the least foresight to the most.

    With estimated survivals "per context" is the best that the estimate finds; a controller may do better.
    """
    known = scene.tracks[0].survivals is not None
    told = scene.tracks[0].told_survivals is not None
    note = " (estimated)" if scene.tracks[0].estimated else ""
    table: Sequence[tuple[str, bool, Callable[[Sequence[Track], CostRegime], OracleRun]]] = (
        ("best fixed", True, best_fixed),
        ("per signal", told, per_signal),
        (f"per context{note}", known, per_context),
        (f"per context, renewal{note}", known, per_context_renewal),
        ("clairvoyant per round", True, clairvoyant_per_round),
        ("clairvoyant", True, clairvoyant),
    )
    for name, possible, oracle in table:
        if possible:
            found = oracle(scene.tracks, scene.costs)
            yield ComparisonRow(
                world=scene.world,
                regime=scene.regime,
                seed=scene.seed,
                texts=scene.texts,
                policy=found.name if name == "best fixed" else name,
                oracle=True,
                emitted=found.emitted,
                seconds=found.seconds,
                settled=0,
            )
