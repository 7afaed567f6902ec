"""``forerun replay``: any controller on a recorded run, without the model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forerun.cli.compare import CostKinds, HorizonNames, Seeds, recording_summary, study
from forerun.cli.data import Json
from forerun.evaluation.comparison import recorded_scenes
from forerun.evaluation.recording import read_recording


def replay(
    recording: Annotated[Path, typer.Argument(help="File written by forerun record.")],
    horizon: HorizonNames = None,
    costs: CostKinds = None,
    seeds: Seeds = 1,
    result: Annotated[Path | None, typer.Option(help="Result file to write (JSON).")] = None,
    as_json: Json = False,
) -> None:
    """Run controllers on a recorded run: position i leads to i + 1 + min(horizon, accepted at i).

    With one seed the coins are those of a live run with the recording's seed, and so are the rounds.
    """
    recorded = read_recording(recording)
    kinds = costs or ["cached", "uncached"]
    study(
        recorded_scenes(recorded, kinds, seeds=seeds),
        len(recorded.header.temperatures) * len(kinds) * seeds,
        horizon,
        size={"seeds": seeds, "recording": recording_summary(recorded)},
        result=result,
        as_json=as_json,
        format="forerun-replay-1",
    )
