"""A result as a table for a README: the same numbers as the page, with their spread."""

from __future__ import annotations

from forerun.reports.schema import ArmResult, DemoResult
from forerun.reports.wording import figure, ratio_figure

_HEADINGS = (
    "T",
    "task",
    "arm",
    "tau",
    "tokens/s",
    "ratio to plain (95 % interval)",
    "verdict",
    "rounds",
    "mean horizon",
    "controller µs/round",
)


def markdown_table(result: DemoResult) -> str:
    """One row for each task, temperature and arm, and below it where and how it was measured."""
    lines = [
        "| " + " | ".join(_HEADINGS) + " |",
        "|" + "---|" * len(_HEADINGS),
    ]
    for temperature in result.temperatures:
        for task, runs in result.by_task_at(temperature):
            lines += [_row(temperature, task, run) for run in runs]
    machine = result.machine
    pairs = max(run.num_prompts for run in result.runs)
    lines += [
        "",
        f"{machine.cpu}, {machine.threads} of {machine.cores} cores, {machine.dtype}, torch {machine.torch_version}; "
        f"{pairs} prompts for each arm and temperature, {result.max_new_tokens} tokens each, arms in turn on every "
        f"prompt, seeds {', '.join(map(str, result.seeds))}; prefill excluded; intervals from a paired bootstrap over "
        "prompts. "
        f"Command: `{result.command}`, commit `{result.commit}`.",
    ]
    return "\n".join(lines) + "\n"


def _row(temperature: float, task: str, run: ArmResult) -> str:
    cells = (
        f"{temperature:g}",
        task,
        run.arm,
        figure(run.tau, 2),
        figure(run.tokens_per_second, 1),
        ratio_figure(run.ratio_to_plain),
        run.verdict or "",
        str(run.rounds),
        figure(run.mean_horizon, 2),
        figure(run.controller_microseconds_per_round, 0),
    )
    return "| " + " | ".join(cells) + " |"
