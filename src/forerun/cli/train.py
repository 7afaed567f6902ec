"""``forerun train``: a drafter for a target."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from forerun.cli.data import Dtype, Json, Target
from forerun.cli.progress import long_progress
from forerun.models import EMBEDDED_TARGET, load_target
from forerun.recipes import DRAFTERS, OBJECTIVES, drafter_config, objective
from forerun.training import TrainConfig, portable_command, train_drafter


def train(
    features: Annotated[Path, typer.Argument(help="Folder written by forerun data prepare.")],
    answers: Annotated[Path, typer.Option(help="The answers that the features were captured from.")],
    output: Annotated[Path, typer.Option(help="Drafter folder to write at the end.")],
    run: Annotated[Path, typer.Option(help="Folder for state and log on the way.")],
    target: Target = EMBEDDED_TARGET.name,
    dtype: Dtype = "float32",
    loss: Annotated[str, typer.Option(help=f"One of {', '.join(OBJECTIVES)}.")] = "tvp",
    position_weights: Annotated[str, typer.Option(help="bound, exp, geometric, uniform, or own: the loss's.")] = "own",
    steps: Annotated[int, typer.Option(help="Optimiser updates.", min=1)] = 1000,
    rows_per_step: Annotated[int, typer.Option(help="Sequences in an update.", min=1)] = 8,
    blocks_per_row: Annotated[int, typer.Option(help="Anchors sampled in each.", min=1)] = 32,
    learning_rate: Annotated[float, typer.Option(help="Peak.")] = 6e-4,
    drafter: Annotated[str, typer.Option(help=f"One of {', '.join(DRAFTERS)}.")] = "dspark",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="field=value of the drafter's configuration, such as block_size=5; repeatable."),
    ] = None,
    show_config: Annotated[bool, typer.Option(help="Print the drafter's whole configuration and stop.")] = False,
    matmul_precision: Annotated[str, typer.Option(help="highest, or medium to use bfloat16 units.")] = "highest",
    prefix: Annotated[
        str,
        typer.Option(
            help="Tokens before a scored position: text; for mask tokens student, or accepted: student's as far as the "
            "target agrees; or own: what suits the drafter."
        ),
    ] = "own",
    seed: Annotated[int, typer.Option(help="Of weights, rows and anchors.")] = 0,
    resume: Annotated[bool, typer.Option(help="Go on with the state in --run.")] = False,
    as_json: Json = False,
) -> None:
    """Fit a drafter to its target."""
    console = Console(stderr=True, markup=False)  # paths are text
    config = TrainConfig(
        objective=objective(loss),
        position_weights=position_weights,
        steps=steps,
        rows_per_step=rows_per_step,
        blocks_per_row=blocks_per_row,
        learning_rate=learning_rate,
        matmul_precision=matmul_precision,
        prefix=prefix,
        seed=seed,
    )
    model = load_target(target, dtype=dtype, optimize=False)
    shape = drafter_config(drafter, model, settings or [])
    if show_config:
        print(shape.model_dump_json(indent=None if as_json else 2))
        return
    with long_progress(console) as progress:
        result = train_drafter(
            model,
            features,
            answers,
            shape,
            config,
            output,
            run,
            command=portable_command([word for word in sys.argv if word != "--resume"]),
            resume=resume,
            progress=progress,
        )
    if as_json:
        print(json.dumps({"output": str(output), "seconds": result.seconds, **result.validation}))
    else:
        console.print(f"{output}: predicted tau {result.validation['predicted_tau']:.3f} on held-out prompts")
