"""``forerun data``: training text and captured features."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from forerun.cli.progress import long_progress
from forerun.errors import ForerunError
from forerun.models import EMBEDDED_TARGET, load_target
from forerun.recipes import DRAFTERS, drafter_config
from forerun.training import (
    FeatureConfig,
    RegenerationConfig,
    capture_features,
    portable_command,
    read_history,
    select_prompts,
    write_history,
)
from forerun.training import regenerate as run_regeneration
from forerun.training.features import file_sha256

data_app = typer.Typer(help="Write and prepare training data.", no_args_is_help=True)

Target = Annotated[str, typer.Option(help=f"{EMBEDDED_TARGET.name}, a model folder, or a hub id.")]
Dtype = Annotated[str, typer.Option(help="float32 or bfloat16.")]
Json = Annotated[bool, typer.Option("--json", help="Print one machine-readable line.")]


@data_app.command()
def regenerate(
    prompts: Annotated[Path, typer.Argument(help="JSON lines with id, domain, turns, source, license.")],
    output: Annotated[Path, typer.Option(help="File to append answers to; an interrupted run goes on in it.")],
    target: Target = EMBEDDED_TARGET.name,
    dtype: Dtype = "float32",
    license: Annotated[
        list[str] | None, typer.Option(help="Accepted licence of prompts; repeatable; default MIT and Apache-2.0.")
    ] = None,
    held_out: Annotated[list[Path] | None, typer.Option(help="Test suite to stay clear of; repeatable.")] = None,
    samples: Annotated[
        list[str] | None, typer.Option(help="Answers per prompt, DOMAIN=N; repeatable; default 1.")
    ] = None,
    max_prompts: Annotated[list[str] | None, typer.Option(help="Prompts at most, DOMAIN=N; repeatable.")] = None,
    max_rows: Annotated[int | None, typer.Option(help="Answers in all.", min=1)] = None,
    max_prompt_tokens: Annotated[int, typer.Option(help="Longer prompts are left out, in tokens.", min=1)] = 256,
    max_new_tokens: Annotated[int, typer.Option(help="Cap on an answer, in tokens.", min=1)] = 256,
    temperature: Annotated[float, typer.Option(help="1 draws from the target's own law.")] = 1.0,
    batch_size: Annotated[int, typer.Option(help="Answers written side by side.", min=1)] = 96,
    seed: Annotated[int, typer.Option(help="Of the order and of every draw.")] = 0,
    as_json: Json = False,
) -> None:
    """Let the target answer prompts: the text a drafter is trained on."""
    console = Console(stderr=True, markup=False)  # paths and licences are text
    suites = held_out or []
    licenses = tuple(["MIT", "Apache-2.0"] if license is None else license)
    selection = select_prompts(prompts, licenses=licenses, held_out=tuple(suites))
    for reason, count in sorted(selection.dropped.items()):
        console.print(f"dropped {count}: {reason}")
    config = RegenerationConfig(
        samples_per_prompt=_per_domain(samples),
        max_prompts=_per_domain(max_prompts),
        max_rows=max_rows,
        max_prompt_tokens=max_prompt_tokens,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        batch_size=batch_size,
        seed=seed,
    )
    model = load_target(target, dtype=dtype)
    with long_progress(console) as progress:
        report = run_regeneration(model, selection.prompts, output, config, progress=progress)
    inputs = {path.name: file_sha256(path) for path in [prompts, *suites]}
    write_history(output, portable_command(sys.argv), [], inputs)
    if report.too_long_prompts:
        console.print(f"left out {report.too_long_prompts}: prompt longer than {max_prompt_tokens} tokens")
    if as_json:
        print(json.dumps(asdict(report)))
    else:
        console.print(
            f"{output}: {report.rows} rows, {report.answer_tokens} answer tokens, {report.truncated} at the cap"
        )


@data_app.command()
def prepare(
    answers: Annotated[Path, typer.Argument(help="File written by forerun data regenerate.")],
    output: Annotated[Path, typer.Option(help="Folder for the captured features; resumable.")],
    target: Target = EMBEDDED_TARGET.name,
    dtype: Dtype = "float32",
    drafter: Annotated[
        list[str] | None,
        typer.Option(help=f"What the features are for: {', '.join(DRAFTERS)}; repeatable, default dspark."),
    ] = None,
    max_length: Annotated[int, typer.Option(help="Longer sequences are cut, in tokens.", min=8)] = 512,
    matmul_precision: Annotated[str, typer.Option(help="highest, or medium to use bfloat16 units.")] = "highest",
    as_json: Json = False,
) -> None:
    """Run the target over its answers once and keep what training a drafter needs."""
    console = Console(stderr=True, markup=False)  # paths and licences are text
    earlier = read_history(answers)["commands"]
    model = load_target(target, dtype=dtype, optimize=False)  # packed weights are for a few rows, not for whole texts
    layers = {layer for name in drafter or ["dspark"] for layer in drafter_config(name, model).captured_layers}
    config = FeatureConfig(
        captured_layers=tuple(sorted(layers)), max_length=max_length, matmul_precision=matmul_precision
    )
    with long_progress(console) as progress:
        rows = capture_features(model, answers, output, config, progress=progress)
    write_history(output, portable_command(sys.argv), earlier, {answers.name: file_sha256(answers)})
    if as_json:
        print(json.dumps({"rows": rows, "folder": str(output)}))
    else:
        console.print(f"{output}: features of {rows} rows")


def _per_domain(pairs: list[str] | None) -> dict[str, int]:
    result = {}
    for pair in pairs or []:
        domain, separator, number = pair.partition("=")
        if not separator or not number.isdecimal():
            raise ForerunError(f"expected DOMAIN=N, got {pair!r}")
        result[domain] = int(number)
    return result
