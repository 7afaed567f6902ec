"""``forerun compare``: controlled studies."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from forerun.cli.data import Json
from forerun.cli.progress import long_progress
from forerun.errors import ForerunError
from forerun.evaluation import study_origin
from forerun.evaluation.comparison import (
    PolicyFactory,
    Scene,
    compare,
    recorded_scenes,
    simulated_scenes,
    summarise,
)
from forerun.evaluation.recording import Recording, read_recording
from forerun.horizons import CostTable, FixedHorizon, HorizonPolicy
from forerun.recipes import DEFAULT_SCENES, HORIZONS, horizon_named, regime_named, world_named
from forerun.reports import comparison_tables
from forerun.training import portable_command
from forerun.verification import Agreement

compare_app = typer.Typer(help="Controlled studies: equal texts, equal costs, paired seeds.", no_args_is_help=True)

_PAGE_WIDTH = 170

HorizonNames = Annotated[
    list[str] | None, typer.Option("--horizon", help="Controller, or a number of tokens; repeatable; default all.")
]
CostKinds = Annotated[
    list[str] | None, typer.Option("--costs", help="Of a recording: cached or uncached; repeatable; default both.")
]
Seeds = Annotated[int, typer.Option(help="Texts of a simulation, or coins on a recording.", min=1)]


@compare_app.callback()
def compare_studies() -> None:
    """Controlled studies: equal texts, equal costs, paired seeds."""


@compare_app.command()
def horizons(
    world: Annotated[
        list[str] | None, typer.Option(help="Simulated world; repeatable; default the whole study.")
    ] = None,
    regime: Annotated[list[str] | None, typer.Option(help="Cost regime of the worlds; repeatable.")] = None,
    recording: Annotated[Path | None, typer.Option(help="A recording in place of simulated worlds.")] = None,
    costs: CostKinds = None,
    horizon: HorizonNames = None,
    seeds: Seeds = 3,
    tokens: Annotated[int, typer.Option(help="Of each simulated text.", min=500)] = 24_000,
    result: Annotated[Path | None, typer.Option(help="Result file to write (JSON); rows are kept beside it.")] = None,
    as_json: Json = False,
) -> None:
    """Controllers and oracles on the same texts: speed, share of the oracle, calibration, recovery."""
    if recording is not None and (world or regime):
        raise ForerunError("--recording replaces simulated worlds; leave --world and --regime out")
    if recording is None and costs:
        raise ForerunError("--costs belong to a recording; for simulated worlds name a --regime")
    if result is not None and not result.parent.is_dir():
        raise ForerunError(f"cannot write {result}: the folder {result.parent} does not exist")
    if recording is None:
        parts = _parts(world, regime)
        scenes, count = simulated_scenes(parts, num_tokens=tokens, seeds=seeds), len(parts) * seeds
        size: dict[str, Any] = {"tokens": tokens, "seeds": seeds}
    else:
        recorded = read_recording(recording)
        kinds = costs or ["cached", "uncached"]
        scenes = recorded_scenes(recorded, kinds, seeds=seeds)
        count = len(recorded.header.temperatures) * len(kinds) * seeds
        size = {"seeds": seeds, "recording": recording_summary(recorded)}
    study(scenes, count, horizon, size=size, result=result, as_json=as_json, format="forerun-horizon-comparison-1")


def study(
    scenes: Iterator[Scene],
    num_scenes: int,
    names: Sequence[str] | None,
    *,
    size: dict[str, Any],
    result: Path | None,
    as_json: bool,
    format: str,
) -> None:
    """Run, show and write a comparison.

    Args:
        scenes: in order.
        num_scenes: how many.
        names: of the policies; ``None`` for all.
        size: of the study, for the result.
        result: file to write.
        as_json: print the result as one line in place of tables.
        format: of the result.
    """
    origin = study_origin(format=format, command=portable_command(sys.argv))
    policies = {name: policy_factory(name) for name in names or list(HORIZONS)}
    journal = None if result is None else result.with_name(result.name + ".rows")
    with long_progress(Console(stderr=True)) as progress:
        task = progress.add_task("Comparing", total=num_scenes * len(policies))
        rows = compare(
            scenes, policies, journal=journal, on_row=lambda row: progress.advance(task, 0 if row.oracle else 1)
        )
    found = {**origin, **size, "scenes": summarise(rows)}
    if result is not None:
        result.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if as_json:
        print(json.dumps(found))
        return
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PAGE_WIDTH)  # a file has no width of its own
    for table in comparison_tables(found["scenes"]):
        console.print(table)


def policy_factory(name: str) -> PolicyFactory:
    """From a name to fresh policies; replay verifies by agreement, which bears any truncation."""

    def make(costs: CostTable) -> HorizonPolicy:
        found = horizon_named(name, rule=Agreement(), costs=costs)
        return FixedHorizon(found) if isinstance(found, int) else found

    make(CostTable.from_profile([(0, 1.0)]))  # an unknown name shows before anything runs
    return make


def recording_summary(recording: Recording) -> dict[str, Any]:
    """What a result says of the recording it was made from."""
    header = recording.header
    return {
        "created": header.created,
        "command": header.command,
        "commit": header.commit,
        "machine": header.machine,
        "target": header.target,
        "drafter": header.drafter,
        "prompts": list(header.prompts),
        "max_new_tokens": header.max_new_tokens,
        "cached_seconds": list(header.cached_seconds),
        "uncached": [point.model_dump() for point in header.uncached],
    }


def _parts(worlds: list[str] | None, regimes: list[str] | None) -> list[tuple[str, Any, str, Any]]:
    if worlds is None and regimes is None:
        pairs = list(DEFAULT_SCENES)
    else:
        pairs = [(world, regime) for world in worlds or ["ar1"] for regime in regimes or ["autoregressive"]]
    return [(world, world_named(world), regime, regime_named(regime)) for world, regime in pairs]
