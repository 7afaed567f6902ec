"""Worlds keep what they say: survivals are those of the accept bits and of the soft labels."""

import numpy as np
import pytest

from forerun.evaluation.replay import Track, replay
from forerun.evaluation.simulator import (
    AutoregressiveDifficulty,
    BinaryWorld,
    Curve,
    HazardWorld,
    SwitchingDifficulty,
    World,
)
from forerun.horizons import FixedHorizon, gains, survivals

SEED, TOKENS, ROUNDING = 7, 10_000, 1e-12
Z_MAX = 4.5
"""Two-sided normal quantile: each of about 40 comparisons fails by chance with probability 7e-6."""

WORLDS: dict[str, World] = {
    "hazards": HazardWorld(difficulty=AutoregressiveDifficulty(memory=0.5)),
    "binary": BinaryWorld(),
}


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS.keys())
@pytest.mark.usefixtures("unchecked_shapes")
def test_accept_bits_and_soft_labels_have_the_known_survivals(world: World) -> None:
    """Catches an acceptance that is no min(1, target / draft), and labels whose mean is another hazard's.

    E[A_j] = s_j, E[prod a_i] = s_j and E[prod over i < j of a_i (1 - overlap_j)] = s_{j-1} - s_j, position by position.
    """
    tracks = world.tracks(TOKENS, seed=SEED)
    for depth in range(1, world.window + 1):
        bits, soft, labels = [], [], []
        for track in tracks:
            whole = track.limits >= depth
            known = np.concatenate([np.ones((len(track), 1)), _known(track)], axis=1)[whole]
            weights = np.cumprod(np.array(track.accept_probabilities), axis=1)[whole]
            before = weights[:, depth - 2] if depth > 1 else np.ones(len(known))
            bits.append((np.array(track.accepted)[whole] >= depth) - known[:, depth])
            soft.append(weights[:, depth - 1] - known[:, depth])
            rejected = before * (1.0 - np.array(track.overlaps)[whole, depth - 1])
            labels.append(rejected - (known[:, depth - 1] - known[:, depth]))
        for name, parts in (("bits", bits), ("soft", soft), ("labels", labels)):
            errors = np.concatenate(parts)
            allowed = Z_MAX * errors.std() / np.sqrt(len(errors)) + ROUNDING
            assert abs(errors.mean()) < allowed, (name, depth, errors.mean(), allowed)


def _known(track: Track) -> np.ndarray:
    assert track.survivals is not None
    return track.survivals


def test_the_binary_world_is_the_papers() -> None:
    """Hazards 1/4 and 1/3 gain 2.25; the mean mismatch 1/2 would promise 2.125."""
    track = BinaryWorld().tracks(10, seed=0)[0]
    assert _known(track)[0].tolist() == pytest.approx(survivals([1 / 4, 1 / 3]))
    assert gains(_known(track)[0].tolist())[-1] == pytest.approx(2.25)
    assert gains(survivals([1 / 4, 1 / 2]))[-1] == pytest.approx(2.125)


@pytest.mark.usefixtures("unchecked_shapes")
def test_all_controllers_face_one_world() -> None:
    """The same seed gives the same text whatever is drafted: positions, emitted tokens and coins do not move."""
    world = HazardWorld(answer_tokens=60)
    costs = Curve(label="flat")
    first, again, other = world.tracks(120, seed=4), world.tracks(120, seed=4), world.tracks(120, seed=5)
    assert [track.accepted for track in first] == [track.accepted for track in again]
    assert [track.coins for track in first] != [track.coins for track in other]
    for horizon in (0, 3, 8):
        run = replay(FixedHorizon(horizon), first, costs)
        assert run.emitted.sum() == 120 and (run.horizons <= horizon).all()


def test_difficulty_jumps_where_shifts_say() -> None:
    process = SwitchingDifficulty(phase=400, spread=0.1)
    path = process.path(1200, random=np.random.default_rng(0))
    assert process.shifts(1200) == (400, 800)
    assert path[:400].max() < 0 < path[400:800].min() and path[800:].max() < 0
