"""``forerun check``: proofs that users can run on their own pair."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import TaskID

from forerun.cli.data import Dtype, Json, Target
from forerun.cli.drafter import pick_drafter
from forerun.cli.progress import long_progress
from forerun.drafters import Drafter, NetworkDrafter
from forerun.errors import ForerunError
from forerun.evaluation import (
    ExactnessConfig,
    ExactnessReport,
    ParityConfig,
    ParityReport,
    check_exactness,
    check_parity,
    result_origin,
)
from forerun.models import EMBEDDED_TARGET, TransformersTarget, load_target
from forerun.recipes import demo_prompts, prompts_from_file, rule_named, shipped_prompts
from forerun.training import portable_command
from forerun.verification import Rule

check_app = typer.Typer(help="Check your own pair of target and drafter.", no_args_is_help=True)


@check_app.callback()
def check() -> None:
    """Check your own pair of target and drafter."""


@check_app.command()
def exactness(
    target: Target = EMBEDDED_TARGET.name,
    dtype: Dtype = "float32",
    drafter: Annotated[
        str, typer.Option(help="auto (the shipped one), prompt-lookup, suffix-lookup, a drafter folder, or model:NAME.")
    ] = "auto",
    optimize: Annotated[bool, typer.Option(help="Lay weights out for narrow verification passes.")] = True,
    prompts: Annotated[int | None, typer.Option(help="How many of the shipped prompts; default 3.")] = None,
    prompt_file: Annotated[
        Path | None, typer.Option(help='Prompts of your own, JSON lines {"prompt": "..."}, in place of shipped ones.')
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(help="Of each greedy answer, in tokens.")] = 16,
    horizons: Annotated[
        str | None, typer.Option(help="Draft lengths to check; default 1,4,7 as far as the drafter goes.")
    ] = None,
    rule: Annotated[str, typer.Option(help="Acceptance rule: token-level, block or agreement.")] = "token-level",
    samples: Annotated[int, typer.Option(help="Answers drawn for the statistical check.", min=1)] = 300,
    seed: Annotated[int, typer.Option(help="Of these answers.")] = 0,
    as_json: Json = False,
) -> None:
    """Is decoding with this drafter exact? Greedy answers, laws of wide passes and sampled answers against the target.

    Exit code 1 if a check fails. Lossy acceptance rules change the target's law on purpose and cannot be checked.
    """
    if prompts is not None and prompt_file is not None:
        raise ForerunError("--prompts counts shipped prompts and --prompt-file replaces them; choose one")
    config = ExactnessConfig(
        horizons=None if horizons is None else _numbers(horizons),
        max_new_tokens=max_new_tokens,
        num_samples=samples,
        seed=seed,
    )
    chosen = (
        shipped_prompts(3 if prompts is None else prompts) if prompt_file is None else prompts_from_file(prompt_file)
    )
    model = load_target(target, dtype=dtype, optimize=optimize)
    proposer = pick_drafter(drafter, model, optimize=optimize)
    if proposer is None:
        raise ForerunError("without a drafter there is nothing to check; give another --drafter than none")
    origin = result_origin(model, format="forerun-exactness-1", command=portable_command(sys.argv))
    messages = {prompt.id: model.tokenizer.chat([{"role": "user", "content": prompt.text}]) for prompt in chosen}
    report = _run(model, proposer, messages, config, rule_named(rule, lossy=True))
    if as_json:
        result = {**origin, "drafter": {"name": proposer.name}, "rule": rule, "exact": True, **report.as_dict()}
        print(json.dumps(result, ensure_ascii=False))
    else:
        _show(report, model, proposer.name, rule)
    if not report.passed:
        raise typer.Exit(1)


@check_app.command()
def parity(
    target: Target = EMBEDDED_TARGET.name,
    dtype: Dtype = "float32",
    drafter: Annotated[str, typer.Option(help="auto (the shipped one) or a drafter folder.")] = "auto",
    optimize: Annotated[bool, typer.Option(help="Lay weights out for narrow verification passes.")] = True,
    prompt_file: Annotated[
        Path | None, typer.Option(help='Prompts of your own, JSON lines {"prompt": "..."}, in place of shipped ones.')
    ] = None,
    tokens: Annotated[int, typer.Option(help="How many tokens of answers are checked.", min=1)] = 200,
    max_new_tokens: Annotated[int, typer.Option(help="Of each answer, in tokens.", min=2)] = 64,
    tolerance: Annotated[
        float | None, typer.Option(help="Largest total variation of two laws that should be one; default by type.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the answers.")] = 0,
    as_json: Json = False,
) -> None:
    """Does a drafter decode as it was trained? Laws of both forwards, and predicted against measured tau.

    Exit code 1 if they differ by more than rounding or chance explains.
    """
    chosen = demo_prompts() if prompt_file is None else prompts_from_file(prompt_file)
    model = load_target(target, dtype=dtype, optimize=optimize)
    proposer = pick_drafter(drafter, model, optimize=optimize)
    if not isinstance(proposer, NetworkDrafter):
        raise ForerunError(f"drafter {drafter} was not trained, so there is nothing to compare; give a drafter folder")
    origin = result_origin(model, format="forerun-parity-1", command=portable_command(sys.argv))
    messages = {prompt.id: model.tokenizer.chat([{"role": "user", "content": prompt.text}]) for prompt in chosen}
    config = ParityConfig(num_tokens=tokens, max_new_tokens=max_new_tokens, seed=seed, tolerance=tolerance)
    with long_progress(Console(stderr=True)) as progress:
        task = progress.add_task("Parity", total=tokens)
        report = check_parity(model, proposer, messages, config, on_tokens=lambda count: progress.advance(task, count))
    if as_json:
        print(json.dumps({**origin, "drafter": {"name": proposer.name}, **report.as_dict()}, ensure_ascii=False))
    else:
        _show_parity(report, model, proposer.name)
    if not report.passed:
        raise typer.Exit(1)


def _show_parity(report: ParityReport, target: TransformersTarget, drafter: str) -> None:
    """What was found, as text."""
    console = Console(markup=False, highlight=False, soft_wrap=True)
    sizes = f"{report.tokens} tokens, {report.laws} draft laws, {report.rounds} rounds"
    console.print(f"{target.name} with {drafter}: {sizes}")
    console.print(
        f"  {_mark(report.same_laws)} training and decoding: total variation at most "
        f"{report.largest_total_variation:.2g} (allowed {report.tolerance:g}), logits differ by at most "
        f"{report.largest_logit_difference:.2g}"
    )
    console.print(
        f"  {_mark(report.same_tau)} tau predicted {report.predicted_tau:.3f}, measured {report.measured_tau:.3f} "
        f"(standard error of the difference {report.standard_error:.3f}, {report.max_standard_errors:g} allowed)"
    )
    if not report.passed:
        console.print("\nFAILED: the drafter does not decode as it was trained.")


def _run(
    target: TransformersTarget, drafter: Drafter, prompts: dict[str, list[int]], config: ExactnessConfig, rule: Rule
) -> ExactnessReport:
    with long_progress(Console(stderr=True)) as progress:
        stages: list[TaskID] = []
        return check_exactness(
            target,
            drafter,
            prompts,
            config,
            rule=rule,
            on_stage=lambda stage, steps: stages.append(progress.add_task(stage, total=steps)),
            on_step=lambda: progress.advance(stages[-1]),
        )


def _show(report: ExactnessReport, target: TransformersTarget, drafter: str, rule: str) -> None:
    """What was found, as text."""
    console = Console(markup=False, highlight=False, soft_wrap=True)  # tokens are text; a pipe gets whole lines
    console.print(f"{target.name} with {drafter}, rule {rule}")
    console.print("\nGreedy answers with drafts against plain ones:")
    for run in report.greedy:
        verdict = run.verdict.describe(target.tokenizer.token_of)
        console.print(
            f"  {_mark(run.verdict.passed)} {run.prompt}, horizon {run.horizon}: {verdict} "
            f"({run.accepted} of {run.drafted} drafted tokens accepted)"
        )
    console.print("\nThe target's laws from passes of several tokens against passes of one:")
    for wide in report.widths:
        found = wide.difference
        console.print(
            f"  {_mark(found.passed)} {wide.prompt}, {found.width} tokens a pass: total variation at most "
            f"{found.total_variation:.2g}, at token {found.position + 1} ({found.num_laws} laws; "
            f"rounding explains up to {found.tolerance:g})"
        )
    sampling = report.sampling
    parts = ", ".join(map(str, sampling.horizons))
    console.print("\nFirst tokens of sampled answers against the target's exact law:")
    console.print(
        f"  {_mark(sampling.passed)} {report.sampling_prompt}, horizons {parts}: "
        f"{sampling.num_answers} answers of {sampling.num_tokens} tokens in {sampling.num_classes} classes, "
        f"chi-square {sampling.chi_square:.1f}, p = {sampling.p_value:.3g} (fails below {sampling.alpha:g}; "
        f"seed {sampling.seed}; "
        f"{sampling.accepted} of {sampling.drafted} drafted tokens accepted)"
    )
    console.print(
        "\nEvery check passed." if report.passed else "\nA check FAILED: decoding with this pair is not exact."
    )


def _mark(passed: bool) -> str:
    return "ok  " if passed else "FAIL"


def _numbers(words: str) -> tuple[int, ...]:
    parts = words.split(",")
    if not all(part.strip().isdecimal() and part.strip().isascii() for part in parts):
        raise ForerunError(f"horizons is {words!r}; give numbers of tokens with commas between them, such as 1,4,7")
    return tuple(int(part) for part in parts)
