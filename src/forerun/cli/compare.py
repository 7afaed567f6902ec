"""``forerun compare``: controlled studies."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, final

import typer
from rich.console import Console
from rich.table import Table

from forerun.cli.data import Json
from forerun.cli.progress import long_progress
from forerun.errors import ForerunError
from forerun.evaluation import study_origin
from forerun.evaluation.comparison import (
    LadderScene,
    PolicyFactory,
    Scene,
    climb,
    compare,
    ladder_summary,
    recorded_scenes,
    simulated_scenes,
    summarise,
)
from forerun.evaluation.recording import Recording, read_recording
from forerun.evaluation.replay import CostRegime
from forerun.evaluation.simulator import World
from forerun.horizons import CostTable, FixedHorizon, HorizonPolicy
from forerun.recipes import (
    DEFAULT_SCENES,
    HORIZONS,
    LADDER_SCENES,
    PREDICTORS,
    RUNGS,
    WITHOUT_FEATURES,
    horizon_named,
    regime_named,
    world_named,
)
from forerun.reports import comparison_tables, ladder_tables
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
Worlds = Annotated[
    list[str] | None, typer.Option("--world", help="Simulated world; repeatable; default a whole study.")
]
Regimes = Annotated[list[str] | None, typer.Option("--regime", help="Cost regime of the worlds; repeatable.")]
RecordingFile = Annotated[Path | None, typer.Option("--recording", help="A recording in place of simulated worlds.")]
Tokens = Annotated[int, typer.Option(help="Of each simulated text.", min=500)]
ResultFile = Annotated[
    Path | None, typer.Option("--result", help="Result file to write (JSON); rows are kept beside it.")
]
Seeds = Annotated[int, typer.Option(help="Texts of a simulation, or coins on a recording.", min=1)]


@compare_app.callback()
def compare_studies() -> None:
    """Controlled studies: equal texts, equal costs, paired seeds."""


@compare_app.command()
def horizons(
    world: Worlds = None,
    regime: Regimes = None,
    recording: RecordingFile = None,
    costs: CostKinds = None,
    horizon: HorizonNames = None,
    seeds: Seeds = 3,
    tokens: Tokens = 24_000,
    result: ResultFile = None,
    as_json: Json = False,
) -> None:
    """Controllers and oracles on the same texts: speed, share of the oracle, calibration, recovery."""
    asked = Asked(world, regime, recording, costs, seeds, tokens, result)
    scenes, count, size = chosen_scenes(asked, DEFAULT_SCENES)
    study(scenes, count, horizon, size=size, result=result, as_json=as_json, format="forerun-horizon-comparison-1")


@compare_app.command()
def features(
    world: Worlds = None,
    regime: Regimes = None,
    recording: RecordingFile = None,
    costs: CostKinds = None,
    seeds: Seeds = 3,
    tokens: Tokens = 24_000,
    result: ResultFile = None,
    as_json: Json = False,
) -> None:
    """AMTP's feature levels F0 to F4: how well each predicts, what it costs, and whether it decodes faster.

    Predictions are scored before they are learned from, on rounds that are the same for all levels. Speeds are of
    rounds that each level chose itself, against the fastest of the controllers that have no features.
    """
    asked = Asked(world, regime, recording, costs, seeds, tokens, result)
    scenes, count, size = chosen_scenes(asked, LADDER_SCENES)
    origin = study_origin(format="forerun-feature-ladder-1", command=portable_command(sys.argv))
    climbed: list[tuple[str, str, LadderScene]] = []
    with long_progress(Console(stderr=True)) as progress:
        task = progress.add_task("Comparing", total=count * (1 + len(RUNGS) + len(WITHOUT_FEATURES)))

        def predicting() -> Iterator[Scene]:
            seen: set[tuple[str, str, int]] = set()
            for scene in scenes:
                texts = scene.world, scene.regime, scene.texts
                if texts not in seen:  # other coins change nothing where whole windows are drafted
                    seen.add(texts)
                    climbed.append((scene.world, scene.regime, climb(scene, PREDICTORS)))
                progress.advance(task)
                yield scene

        rows = compare(
            predicting(),
            {**RUNGS, **WITHOUT_FEATURES},
            journal=journal_beside(result),
            on_row=lambda row: progress.advance(task, 0 if row.oracle else 1),
        )
    found = {**origin, **size, "scenes": ladder_summary(climbed, rows, without_features=list(WITHOUT_FEATURES))}
    deliver(found, ladder_tables, result=result, as_json=as_json)


@final
@dataclass(frozen=True, slots=True)
class Asked:
    """Options that say which scenes are compared."""

    world: list[str] | None
    regime: list[str] | None
    recording: Path | None
    costs: list[str] | None
    seeds: int
    tokens: int
    result: Path | None


def chosen_scenes(asked: Asked, default: Sequence[tuple[str, str]]) -> tuple[Iterator[Scene], int, dict[str, Any]]:
    """The scenes that were asked for, how many they are, and what a result says of their size.

    Args:
        asked: options.
        default: worlds and regimes where none is named.

    Raises:
        ForerunError: options that exclude each other, an unknown name, or no folder for the result.
    """
    if asked.recording is not None and (asked.world or asked.regime):
        raise ForerunError("--recording replaces simulated worlds; leave --world and --regime out")
    if asked.recording is None and asked.costs:
        raise ForerunError("--costs belong to a recording; for simulated worlds name a --regime")
    if asked.result is not None and not asked.result.parent.is_dir():
        raise ForerunError(f"cannot write {asked.result}: the folder {asked.result.parent} does not exist")
    size: dict[str, Any] = {"seeds": asked.seeds}
    if asked.recording is None:
        parts = _parts(asked.world, asked.regime, default)
        scenes = simulated_scenes(parts, num_tokens=asked.tokens, seeds=asked.seeds)
        return scenes, len(parts) * asked.seeds, {"tokens": asked.tokens, **size}
    recorded = read_recording(asked.recording)
    kinds = asked.costs or ["cached", "uncached"]
    scenes = recorded_scenes(recorded, kinds, seeds=asked.seeds)
    count = len(recorded.header.temperatures) * len(kinds) * asked.seeds
    return scenes, count, {**size, "recording": recording_summary(recorded)}


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
    with long_progress(Console(stderr=True)) as progress:
        task = progress.add_task("Comparing", total=num_scenes * len(policies))
        rows = compare(
            scenes,
            policies,
            journal=journal_beside(result),
            on_row=lambda row: progress.advance(task, 0 if row.oracle else 1),
        )
    deliver({**origin, **size, "scenes": summarise(rows)}, comparison_tables, result=result, as_json=as_json)


def journal_beside(result: Path | None) -> Path | None:
    """Where finished rows are kept until the result is whole."""
    return None if result is None else result.with_name(result.name + ".rows")


def deliver(
    found: dict[str, Any],
    tables: Callable[[list[dict[str, Any]]], list[Table]],
    *,
    result: Path | None,
    as_json: bool,
) -> None:
    """Write a result, and print it as one line or as tables."""
    if result is not None:
        result.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if as_json:
        print(json.dumps(found))
        return
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PAGE_WIDTH)  # a file has no width of its own
    for table in tables(found["scenes"]):
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


def _parts(
    worlds: list[str] | None, regimes: list[str] | None, default: Sequence[tuple[str, str]]
) -> list[tuple[str, World, str, CostRegime]]:
    if worlds is None and regimes is None:
        pairs = list(default)
    else:
        pairs = [(world, regime) for world in worlds or ["ar1"] for regime in regimes or ["autoregressive"]]
    return [(world, world_named(world), regime, regime_named(regime)) for world, regime in pairs]
