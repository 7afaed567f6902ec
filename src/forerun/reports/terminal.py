"""A result on a terminal: tables, and an answer coloured by who wrote each token."""

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from forerun.reports.schema import ArmResult, DemoResult, Trace, TraceRound, Verdict
from forerun.reports.wording import beyond_drafter, figure, ratio_figure, temperature_name, verdict_mark

DRAFT_STYLE = "black on bright_green"
"""Tokens that the drafter proposed and the target accepted."""

TARGET_STYLE = "bold underline"
"""The target's own tokens."""

_VERDICT_STYLES: dict[Verdict | None, str] = {"faster": "green", "slower": "red"}


def demo_tables(result: DemoResult) -> tuple[Table, ...]:
    """One table for each temperature: a row for every arm on every task."""
    return tuple(_table(result, temperature) for temperature in result.temperatures)


def coloured_round(trace_round: TraceRound) -> Text:
    """The tokens of one round, to be printed as they arrive."""
    text = Text()
    for token in trace_round.draft_tokens:
        text.append(token, DRAFT_STYLE)
    for token in trace_round.target_tokens:
        text.append(token, TARGET_STYLE)
    return text


def coloured_answer(trace: Trace) -> Text:
    """A whole answer; its first token comes from the prefill and is the target's own."""
    return Text.assemble((trace.opening, TARGET_STYLE), *(coloured_round(each) for each in trace.rounds))


def colour_legend() -> Text:
    """Which style means what."""
    return Text.assemble(("drafted and accepted", DRAFT_STYLE), "  ", ("the target's own token", TARGET_STYLE))


def _table(result: DemoResult, temperature: float) -> Table:
    # Columns are narrow enough for a terminal of 80 characters; only a verdict may take a second line.
    title = temperature_name(temperature)
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column("task", no_wrap=True)
    table.add_column("arm", no_wrap=True)
    for heading in ("tau", "tok/s", "× plain (95 %)"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", min_width=len("≈ no clear"))
    for heading in ("rounds", "mean\nhorizon", "control\nµs/round"):
        table.add_column(heading, justify="right", no_wrap=True)
    notes: list[str] = []
    for task, runs in result.by_task_at(temperature):
        for run in runs:
            if run.rounds_beyond_drafter:
                notes.append(beyond_drafter(run))
            table.add_row(task if run is runs[0] else "", *_cells(run), end_section=run is runs[-1])
    if notes:
        table.caption, table.caption_justify = Text("\n".join(notes)), "left"
    return table


def _cells(run: ArmResult) -> tuple[Text, ...]:
    return (
        Text(run.arm + ("" if run.exact else " (lossy)")),
        Text(figure(run.tau, 2)),
        Text(figure(run.tokens_per_second, 1)),
        Text(ratio_figure(run.ratio_to_plain)),
        Text(verdict_mark(run.verdict), _VERDICT_STYLES.get(run.verdict, "")),
        Text(str(run.rounds)),
        Text(figure(run.mean_horizon, 2)),
        Text(figure(run.controller_microseconds_per_round, 0)),
    )
