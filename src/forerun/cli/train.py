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
from forerun.recipes import OBJECTIVES, dspark_for, objective
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
    num_layers: Annotated[int, typer.Option(help="Backbone layers.", min=1)] = 2,
    block_size: Annotated[int, typer.Option(help="Tokens drafted at most.", min=1)] = 7,
    draft_vocab_size: Annotated[int, typer.Option(help="Tokens that can be drafted.", min=1)] = 8192,
    markov_rank: Annotated[int, typer.Option(help="Of the first-order term.", min=1)] = 128,
    matmul_precision: Annotated[str, typer.Option(help="highest, or medium to use bfloat16 units.")] = "highest",
    seed: Annotated[int, typer.Option(help="Of weights, rows and anchors.")] = 0,
    resume: Annotated[bool, typer.Option(help="Go on with the state in --run.")] = False,
    as_json: Json = False,
) -> None:
    """Fit a DSpark drafter to its target."""
    console = Console(stderr=True, markup=False)  # paths are text
    config = TrainConfig(
        objective=objective(loss),
        position_weights=position_weights,
        steps=steps,
        rows_per_step=rows_per_step,
        blocks_per_row=blocks_per_row,
        learning_rate=learning_rate,
        matmul_precision=matmul_precision,
        seed=seed,
    )
    model = load_target(target, dtype=dtype, optimize=False)
    shape = dspark_for(
        model,
        num_layers=num_layers,
        block_size=block_size,
        markov_rank=markov_rank,
        draft_vocab_size=draft_vocab_size,
    )
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
