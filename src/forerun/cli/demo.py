"""``forerun demo``: the main job on the embedded model, measured and shown."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from forerun.cli.data import Json
from forerun.cli.progress import long_progress
from forerun.distributions import SamplingParams
from forerun.drafters import Drafter, checkpoint_hash, load_drafter
from forerun.engine import generate
from forerun.errors import ForerunError
from forerun.evaluation import DemoConfig, DemoPrompt, Tracer, run_demo
from forerun.models import EMBEDDED_TARGET, TransformersTarget, load_target
from forerun.recipes import demo_config, demo_prompts, embedded_drafter
from forerun.reports import (
    colour_legend,
    coloured_round,
    demo_tables,
    headline,
    parse_result,
    write_page,
    write_result,
)
from forerun.reports.schema import DemoResult, TraceRound
from forerun.training import portable_command


def demo(
    quick: Annotated[bool, typer.Option("--quick", help="Two prompts a task: under two minutes.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Every shipped prompt: the README's table.")] = False,
    page: Annotated[Path, typer.Option(help="HTML page to write.")] = Path("forerun-demo.html"),
    result: Annotated[Path | None, typer.Option(help="Result file to write (JSON).")] = None,
    drafter: Annotated[Path | None, typer.Option(help="Drafter folder; default: the shipped one.")] = None,
    as_json: Json = False,
) -> None:
    """Plain, best fixed and adaptive decoding of the same prompts, side by side, exactly."""
    if quick and full:
        raise ForerunError("--quick and --full exclude each other; choose one")
    for path in filter(None, (page, result)):
        if not path.parent.is_dir():
            raise ForerunError(f"cannot write {path}: the folder {path.parent} does not exist")
        if path.is_dir():
            raise ForerunError(f"cannot write {path}: it is a folder; name a file in it")
    folder = embedded_drafter(EMBEDDED_TARGET.name) if drafter is None else drafter
    if folder is None:
        raise ForerunError("this installation has no shipped drafter; give one with --drafter")
    console = Console(stderr=as_json)
    target = load_target()
    proposer = load_drafter(folder, target)
    prompts = demo_prompts()
    console.print(f"[bold]{target.name}[/bold] with the drafter [bold]{proposer.name}[/bold], exact decoding\n")
    _show_answer(console, target, proposer, prompts[0])
    config = demo_config(quick=quick, full=full)
    measured = _measure(console, target, proposer, checkpoint_hash(folder), prompts, config)
    write_page(measured, page)
    if result is not None:
        write_result(measured, result)
    for table in demo_tables(measured):
        console.print(table)
    console.print(headline(measured))
    console.print(f"Page: {page}")
    if as_json:
        print(measured.model_dump_json())


def _show_answer(console: Console, target: TransformersTarget, drafter: Drafter, prompt: DemoPrompt) -> None:
    """Stream one greedy answer with accepted drafts coloured."""
    console.print(prompt.text, style="dim", markup=False, highlight=False)
    answer = generate(target, prompt.text, drafter=drafter, sampling=SamplingParams(temperature=0.0), max_new_tokens=64)
    tracer = Tracer(target.tokenizer)
    console.print(tracer.opening(answer), end="", markup=False, highlight=False)
    for record in answer:
        console.print(coloured_round(TraceRound.model_validate_json(json.dumps(tracer.round(record)))), end="")
    console.print("\n")
    console.print(colour_legend())
    console.print()


def _measure(
    console: Console,
    target: TransformersTarget,
    drafter: Drafter,
    drafter_sha256: str,
    prompts: list[DemoPrompt],
    config: DemoConfig,
) -> DemoResult:
    with long_progress(console) as progress:
        task = progress.add_task("Starting", total=config.num_answers)
        result = run_demo(
            target,
            drafter,
            drafter_sha256,
            prompts,
            config,
            command=portable_command(sys.argv),
            on_stage=lambda stage: progress.update(task, description=stage),
            on_answer=lambda: progress.advance(task),
        )
    return parse_result(json.dumps(result))
