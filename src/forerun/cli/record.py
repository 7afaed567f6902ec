"""``forerun record``: what a round beginning at each position of an answer would meet, for ``forerun replay``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from forerun.cli.data import Dtype, Json, Target
from forerun.cli.drafter import pick_drafter
from forerun.cli.progress import long_progress
from forerun.drafters import Drafter
from forerun.errors import ForerunError
from forerun.evaluation import DemoPrompt, result_origin
from forerun.evaluation.recording import (
    RecordedAnswer,
    RecordingHeader,
    RecordingSettings,
    append_line,
    measured_costs,
    record_answers,
    resume_recording,
    start_recording,
)
from forerun.models import EMBEDDED_TARGET, TransformersTarget, load_target
from forerun.recipes import prompts_from_file, shipped_prompts
from forerun.training import portable_command


def record(
    output: Annotated[
        Path, typer.Argument(help="File to write, JSON lines; an interrupted one goes on with --resume.")
    ],
    target: Target = EMBEDDED_TARGET.name,
    dtype: Dtype = "float32",
    drafter: Annotated[
        str, typer.Option(help="auto (the shipped one), prompt-lookup, a drafter folder, or model:NAME.")
    ] = "auto",
    optimize: Annotated[bool, typer.Option(help="Lay weights out for narrow verification passes.")] = True,
    prompts: Annotated[int | None, typer.Option(help="How many of the shipped prompts; default 12.")] = None,
    prompt_file: Annotated[
        Path | None, typer.Option(help='Prompts of your own, JSON lines {"prompt": "..."}, in place of shipped ones.')
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(help="Of each answer, in tokens.", min=2)] = 96,
    temperature: Annotated[list[float] | None, typer.Option(help="0 is greedy; repeatable; default 0 and 1.")] = None,
    ignore_stop_ids: Annotated[bool, typer.Option(help="Go on past stop ids, for answers of equal length.")] = False,
    seed: Annotated[int, typer.Option(help="Of every draw.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted recording.")] = False,
    as_json: Json = False,
) -> None:
    """Draft and verify the whole window at every position of some answers, so that any controller can be replayed.

    Costs about as much as decoding one token at a time in passes of the window's width. Verification is by agreement,
    whose text depends on no horizon.
    """
    if prompts is not None and prompt_file is not None:
        raise ForerunError("--prompts counts shipped prompts and --prompt-file replaces them; choose one")
    chosen = (
        shipped_prompts(12 if prompts is None else prompts) if prompt_file is None else prompts_from_file(prompt_file)
    )
    settings = RecordingSettings(
        max_new_tokens=max_new_tokens,
        temperatures=tuple(temperature or (0.0, 1.0)),
        seed=seed,
        ignore_stop_ids=ignore_stop_ids,
    )
    if output.exists() and not resume:
        raise ForerunError(f"{output} exists; add --resume to go on with it, or name another file")
    if not output.parent.is_dir():
        raise ForerunError(f"cannot write {output}: the folder {output.parent} does not exist")
    model = load_target(target, dtype=dtype, optimize=optimize)
    proposer = pick_drafter(drafter, model, optimize=optimize)
    if proposer is None:
        raise ForerunError("without a drafter there is nothing to record; give another --drafter than none")
    with long_progress(Console(stderr=True)) as progress:
        task = progress.add_task("Measuring costs", total=len(chosen) * len(settings.temperatures))
        recorded = 0
        if output.exists():
            recorded = resume_recording(output, _identity(model, proposer, drafter, chosen, settings))
        else:
            start_recording(output, _header(model, proposer, drafter, chosen, settings))
        progress.update(task, description="Recording", completed=recorded)

        def keep(answer: RecordedAnswer) -> None:
            append_line(output, answer)
            progress.advance(task)

        record_answers(
            model,
            proposer,
            chosen,
            settings,
            recorded=recorded,
            on_answer=keep,
        )
    num_answers = len(chosen) * len(settings.temperatures)
    if as_json:
        print(json.dumps({"recording": str(output), "answers": num_answers}))
    else:
        print(f"{output}: {num_answers} answers")


def _identity(
    target: TransformersTarget,
    proposer: Drafter,
    word: str,
    prompts: list[DemoPrompt],
    settings: RecordingSettings,
) -> dict[str, object]:
    """What all parts of a recording share."""
    return {
        "target": {"name": target.name, "sha256": target.fingerprint},
        "drafter": {"name": proposer.name, "source": Path(word).name},
        "seed": settings.seed,
        "max_new_tokens": settings.max_new_tokens,
        "ignore_stop_ids": settings.ignore_stop_ids,
        "max_horizon": proposer.max_horizon,
        "temperatures": settings.temperatures,
        "prompts": tuple(prompt.id for prompt in prompts),
    }


def _header(
    target: TransformersTarget,
    proposer: Drafter,
    word: str,
    prompts: list[DemoPrompt],
    settings: RecordingSettings,
) -> RecordingHeader:
    origin = result_origin(target, format="forerun-recording-1", command=portable_command(sys.argv))
    cached, drafting, uncached = measured_costs(target, proposer, prompts[-6:], settings)
    return RecordingHeader.model_validate(
        {
            **origin,
            **_identity(target, proposer, word, prompts, settings),
            "rule": "agreement",
            "cached_seconds": cached,
            "draft_seconds": drafting,
            "uncached": uncached,
        }
    )
