"""``forerun profile``: what drafting costs on this machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from forerun.cli.data import Dtype, Json, Target
from forerun.cli.drafter import pick_drafter
from forerun.cli.progress import long_progress
from forerun.errors import ForerunError
from forerun.evaluation.cost_profile import CostProfile, ProfileConfig, measure_costs, write_profile
from forerun.models import EMBEDDED_TARGET, load_target
from forerun.training import portable_command


def profile(
    output: Annotated[Path, typer.Option(help="Cost file to write; forerun generate --costs reads it.")],
    target: Target = EMBEDDED_TARGET.name,
    dtype: Dtype = "float32",
    drafter: Annotated[
        str, typer.Option(help="auto (the shipped one), prompt-lookup, a drafter folder, or model:NAME.")
    ] = "auto",
    context: Annotated[
        list[int] | None, typer.Option(help="Tokens in the cache; repeatable; default 128, 512.")
    ] = None,
    batch_size: Annotated[list[int] | None, typer.Option(help="Requests together; repeatable; default 1.")] = None,
    max_horizon: Annotated[
        int | None, typer.Option(help="Largest number of tokens drafted; default the drafter's, 16 at most.", min=1)
    ] = None,
    repeats: Annotated[int, typer.Option(help="Timed runs of each shape.", min=1)] = 10,
    optimize: Annotated[bool, typer.Option(help="Lay weights out for narrow verification passes.")] = True,
    as_json: Json = False,
) -> None:
    """Time plain decoding, drafting k tokens and verifying them; print from which tau on drafting pays.

    tau is tokens per round, the correction or bonus included. Rounds of k drafts are faster than plain decoding where
    their tau is above the break-even tau.
    """
    console = Console(stderr=True)
    if not output.parent.is_dir():
        raise ForerunError(f"{output.parent} is no folder; make it first")
    model = load_target(target, dtype=dtype, optimize=optimize)
    proposer = pick_drafter(drafter, model, optimize=optimize)
    if proposer is None:
        raise ForerunError("a cost profile needs a drafter; give one instead of none")
    largest = min(16, proposer.max_horizon) if max_horizon is None else max_horizon
    horizons = sorted({k for k in (1, 2, 3, 4, 6, 8, 12, 16, largest) if k <= largest})
    config = ProfileConfig(
        contexts=tuple(context or (128, 512)),
        batch_sizes=tuple(batch_size or (1,)),
        horizons=tuple(horizons),
        repeats=repeats,
    )
    with long_progress(console) as bar:
        task = bar.add_task("Timing shapes", total=None)
        measured = measure_costs(
            model,
            proposer,
            config,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    write_profile(output, measured, model, proposer, portable_command(sys.argv))
    if as_json:
        print(json.dumps(_rows(measured), allow_nan=False))
    else:
        Console().print(_table(measured))
        console.print(f"Costs written to {output}", style="dim")


def _rows(measured: CostProfile) -> list[dict[str, float]]:
    drafts = {one.tokens: median(one.seconds) for one in measured.drafts}
    return [
        {
            "batch_size": one.batch_size,
            "context": one.context_length,
            "horizon": horizon,
            "draft_seconds": drafts.get(horizon, 0.0),
            "verify_seconds": median(one.seconds),
            "break_even_tau": measured.break_even(horizon, context=one.context_length, batch_size=one.batch_size),
        }
        for one in measured.passes
        for horizon in (one.width // one.batch_size - 1,)
    ]


def _table(measured: CostProfile) -> Table:
    table = Table(title=f"Medians of {measured.config.repeats} runs")
    for name in ("batch", "context", "k", "draft ms", "verify ms", "break-even tau"):
        table.add_column(name, justify="right")
    for row in _rows(measured):
        table.add_row(
            f"{row['batch_size']:.0f}",
            f"{row['context']:.0f}",
            f"{row['horizon']:.0f}",
            f"{1e3 * row['draft_seconds']:.2f}",
            f"{1e3 * row['verify_seconds']:.2f}",
            f"{row['break_even_tau']:.2f}",
        )
    return table
