"""``forerun data``: training text and captured features."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from forerun.cli.progress import long_progress
from forerun.errors import ForerunError
from forerun.models import load_target
from forerun.training.prompts import select_prompts
from forerun.training.regenerate import RegenerationConfig
from forerun.training.regenerate import regenerate as run_regeneration

data_app = typer.Typer(help="Write and prepare training data.", no_args_is_help=True)


@data_app.command()
def regenerate(
    prompts: Annotated[Path, typer.Argument(help="JSON lines with id, domain, turns, source, license.")],
    output: Annotated[Path, typer.Option(help="File to append answers to; an interrupted run goes on in it.")],
    target: Annotated[str, typer.Option(help="smollm2-135m, a model folder, or a hub id.")] = "smollm2-135m",
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "float32",
    license: Annotated[list[str], typer.Option(help="Accepted licences of prompts; repeatable.")] = [
        "MIT",
        "Apache-2.0",
    ],
    held_out: Annotated[list[Path], typer.Option(help="Test suite to stay clear of; repeatable.")] = [],  # noqa: B006
    samples: Annotated[list[str], typer.Option(help="Answers per prompt, DOMAIN=N; repeatable; default 1.")] = [],  # noqa: B006
    max_prompts: Annotated[list[str], typer.Option(help="Prompts at most, DOMAIN=N; repeatable.")] = [],  # noqa: B006
    max_rows: Annotated[int | None, typer.Option(help="Answers in all.")] = None,
    max_new_tokens: Annotated[int, typer.Option(help="Cap on an answer, in tokens.")] = 256,
    temperature: Annotated[float, typer.Option(help="1 draws from the target's own law.")] = 1.0,
    batch_size: Annotated[int, typer.Option(help="Answers written side by side.")] = 96,
    seed: Annotated[int, typer.Option(help="Of the order and of every draw.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one machine-readable line.")] = False,
) -> None:
    """Let the target answer prompts: the text a drafter is trained on."""
    console = Console(stderr=True)
    selection = select_prompts(prompts, licenses=tuple(license), held_out=tuple(held_out))
    for reason, count in sorted(selection.dropped.items()):
        console.print(f"dropped {count}: {reason}")
    config = RegenerationConfig(
        samples_per_prompt=_per_domain(samples),
        max_prompts=_per_domain(max_prompts),
        max_rows=max_rows,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        batch_size=batch_size,
        seed=seed,
    )
    model = load_target(target, dtype=dtype)
    with long_progress(console) as progress:
        report = run_regeneration(model, selection.prompts, output, config, progress=progress)
    if as_json:
        print(json.dumps(asdict(report)))
    else:
        console.print(
            f"{output}: {report.rows} rows, {report.answer_tokens} answer tokens, {report.truncated} cut at the cap"
        )


def _per_domain(pairs: list[str]) -> dict[str, int]:
    result = {}
    for pair in pairs:
        domain, separator, number = pair.partition("=")
        if not separator or not number.isdigit():
            raise ForerunError(f"expected DOMAIN=N, got {pair!r}")
        result[domain] = int(number)
    return result
