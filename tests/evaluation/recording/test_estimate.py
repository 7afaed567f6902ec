"""Survivals estimated from other prompts: nothing of the own answer, nothing of the future, and near the truth."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.evaluation.recording import estimated_survivals
from forerun.evaluation.recording.estimate import position_features
from forerun.evaluation.replay import Track, best_fixed, per_context
from forerun.evaluation.simulator import AutoregressiveDifficulty, Curve, HazardWorld

COSTS = Curve(label="steep", draft_per_token=0.003)
WORLD = HazardWorld(difficulty=AutoregressiveDifficulty(), answer_tokens=100, size=7)


def with_accepted(track: Track, position: int, accepted: int) -> Track:
    """Another outcome at one position: accepted drafts stand for certain, the next one certainly not."""
    limit = track.contexts[position].limit
    fate = tuple(float(place < accepted) for place in range(limit))

    def swapped(rows: tuple[tuple[float, ...], ...]) -> tuple[tuple[float, ...], ...]:
        return (*rows[:position], fate, *rows[position + 1 :])

    return replace(
        track,
        accepted=(*track.accepted[:position], accepted, *track.accepted[position + 1 :]),
        overlaps=swapped(track.overlaps),
        accept_probabilities=swapped(track.accept_probabilities),
    )


@pytest.mark.usefixtures("unchecked_shapes")
def test_own_prompts_are_left_out() -> None:
    """Both answers to one prompt keep their estimates when one of them ends otherwise; answers to others do not."""
    tracks = WORLD.tracks(500, seed=2)
    prompts = ["a", "b", "a", "c", "d"]
    changed = [with_accepted(tracks[0], 92, 7), *tracks[1:]]
    before, after = estimated_survivals(tracks, prompts), estimated_survivals(changed, prompts)
    assert before is not None and after is not None
    assert np.array_equal(before[0][:93], after[0][:93]) and np.array_equal(before[2], after[2])
    assert not np.array_equal(before[1], after[1])
    assert estimated_survivals(tracks, ["a"] * 5) is None


def test_features_know_committed_text_only() -> None:
    """That a window's fourth draft stands shows four positions later, not sooner. Catches a look into the future."""
    track = WORLD.tracks(100, seed=1)[0]
    fewer, more = (position_features(with_accepted(track, 20, accepted)) for accepted in (3, 5))
    different = np.flatnonzero((fewer != more).any(axis=1))
    assert different.tolist() == [24, 25]


@pytest.mark.usefixtures("unchecked_shapes")
def test_planning_by_the_estimate_beats_every_fixed_horizon() -> None:
    """And stays below planning by the truth, where the difficulty shows in the context and in past windows."""
    tracks = WORLD.tracks(3000, seed=0)
    found = estimated_survivals(tracks, [track.name for track in tracks])
    assert found is not None
    estimated = [replace(track, survivals=own, estimated=True) for track, own in zip(tracks, found, strict=True)]
    planned = per_context(estimated, COSTS).throughput
    assert 1.02 * best_fixed(tracks, COSTS).throughput < planned < per_context(tracks, COSTS).throughput
    truth = np.concatenate([track.survivals for track in tracks if track.survivals is not None])
    assert np.abs(np.concatenate(found).mean(axis=0) - truth.mean(axis=0)).max() < 0.04
