"""A whole comparison: every controller and oracle in every scene, kept row by row so that it can be interrupted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter, ValidationError

from forerun.errors import ForerunError
from forerun.evaluation.comparison.rows import ComparisonRow, Scene, oracle_rows, policy_row
from forerun.evaluation.recording import Recording, estimated_survivals, recorded_costs, recorded_tracks
from forerun.evaluation.replay import CostRegime, Track
from forerun.evaluation.simulator import World
from forerun.horizons import CostTable, HorizonPolicy

PolicyFactory = Callable[[CostTable], HorizonPolicy]
"""A policy that has learned nothing, from the costs that it is told to start with."""

TYPICAL_ACCEPTANCE = 0.8
"""What a profile assumes of drafts; it matters only where rejections cost time."""

_ROW = TypeAdapter(ComparisonRow)


def simulated_scenes(
    parts: Sequence[tuple[str, World, str, CostRegime]], *, num_tokens: int, seeds: int
) -> Iterator[Scene]:
    """Every world under its regime, once for each seed; seeds are the same in all parts.

    Args:
        parts: names and objects.
        num_tokens: of each text.
        seeds: how many.
    """
    for world_name, world, regime_name, costs in parts:
        for seed in range(seeds):
            tracks = world.tracks(num_tokens, seed=seed)
            yield Scene(
                world=world_name,
                regime=regime_name,
                seed=seed,
                texts=seed,
                tracks=tracks,
                costs=costs,
                shifts=world.shifts(num_tokens),
            )


def recorded_scenes(recording: Recording, kinds: Sequence[str], *, seeds: int) -> Iterator[Scene]:
    """Every temperature of a recording under every kind of costs, with several seeds of the policies' coins.

    Survivals are estimated, from the other prompts of the same temperature, where there are several prompts.

    Args:
        recording: as read.
        kinds: of costs: ``cached``, ``uncached``.
        seeds: how many; the first one is the recording's own.
    """
    for temperature in recording.header.temperatures:
        first_seed = recording.header.seed
        tracks = [
            recorded_tracks(recording, temperature=temperature, coin_seed=first_seed + seed) for seed in range(seeds)
        ]
        prompts = [answer.prompt for answer in recording.answers if answer.temperature == temperature]
        survivals = estimated_survivals(tracks[0], prompts)
        for kind in kinds:
            for seed, own in enumerate(tracks):
                yield Scene(
                    world=f"temperature {temperature:g}",
                    regime=kind,
                    seed=seed,
                    texts=0,
                    tracks=own if survivals is None else tuple(map(_estimated, own, survivals)),
                    costs=recorded_costs(recording.header, kind),
                )


def _estimated(track: Track, survivals: np.ndarray) -> Track:
    return replace(track, survivals=survivals, estimated=True)


def compare(
    scenes: Iterator[Scene],
    policies: Mapping[str, PolicyFactory],
    *,
    journal: Path | None,
    on_row: Callable[[ComparisonRow], None],
) -> list[ComparisonRow]:
    """Rows of all oracles and policies in all scenes.

    Args:
        scenes: in order.
        policies: by name.
        journal: file that keeps finished rows; rows that it holds already are not computed again. Make sure that it
            belongs to the same comparison.
        on_row: called for each row, kept ones included.

    Raises:
        ForerunError: the journal holds something else.
    """
    kept = {} if journal is None else _kept(journal)
    rows: list[ComparisonRow] = []

    def take(row: ComparisonRow, *, fresh: bool) -> None:
        rows.append(row)
        if fresh and journal is not None:
            with journal.open("a", encoding="utf-8") as sink:
                sink.write(_ROW.dump_json(row).decode() + "\n")
        on_row(row)

    for scene in scenes:
        table = starting_table(scene.tracks, scene.costs)
        for row in oracle_rows(scene):
            take(row, fresh=False)
        for name, factory in policies.items():
            found = kept.get((scene.world, scene.regime, scene.seed, name))
            take(policy_row(name, factory(table), scene) if found is None else found, fresh=found is None)
    return rows


def starting_table(tracks: Sequence[Track], costs: CostRegime) -> CostTable:
    """The profile that every policy starts from: mean costs at the median context length of the texts."""
    window = max(track.max_limit for track in tracks)
    lengths = np.concatenate([track.context_lengths for track in tracks])
    return costs.table(window, int(np.median(lengths)), TYPICAL_ACCEPTANCE ** np.arange(1, window + 1))


def _kept(journal: Path) -> dict[tuple[str, str, int, str], ComparisonRow]:
    if not journal.is_file():
        return {}
    whole, _, _ = journal.read_text(encoding="utf-8").rpartition("\n")  # a kill may have cut the last line
    rows = []
    for line in filter(None, whole.split("\n")):
        try:
            rows.append(_ROW.validate_json(line))
        except ValidationError as error:
            raise ForerunError(f"{journal} is no journal of a comparison; delete it or name another result") from error
    journal.write_text("".join(_ROW.dump_json(row).decode() + "\n" for row in rows), encoding="utf-8")
    return {(row.world, row.regime, row.seed, row.policy): row for row in rows}
