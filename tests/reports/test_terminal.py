"""Tables and coloured answers on a terminal."""

import io

from rich.console import Console, RenderableType

from forerun.reports import coloured_answer, demo_tables, warnings
from forerun.reports.schema import TraceRound
from forerun.reports.terminal import DRAFT_STYLE, TARGET_STYLE
from tests.reports.sample import FASTER, SLOWER, UNCLEAR, answer_trace, arm_run, demo_result


def shown(thing: RenderableType, width: int) -> str:
    """What a terminal without colours prints."""
    console = Console(width=width, file=io.StringIO(), color_system=None)
    with console.capture() as capture:
        console.print(thing)
    return capture.get()


def test_a_table_fits_eighty_columns_and_says_slower() -> None:
    """Would catch figures cut off on a common terminal, and a slow arm shown without the word."""
    runs = (
        arm_run("plain"),
        arm_run("fixed k=3", ratio=SLOWER),
        arm_run("AMTP", ratio=FASTER),
        arm_run("other", ratio=UNCLEAR),
    )
    (table,) = demo_tables(demo_result(runs=runs))
    page = shown(table, 80)
    assert "…" not in page
    row = next(line for line in page.splitlines() if "fixed k=3" in line)
    assert row.split() == ["fixed", "k=3", "2.50", "25.0", "0.80×", "(0.70–0.90)", "▼", "slower", "100", "1.80", "100"]
    assert "▲ faster" in page
    assert "no clear" in page


def test_one_table_for_each_temperature() -> None:
    runs = (arm_run("plain"), arm_run("plain", temperature=1.0))
    assert [table.title for table in demo_tables(demo_result(runs=runs))] == ["Temperature 0 (greedy)", "Temperature 1"]
    assert demo_tables(demo_result(runs=())) == ()


def test_rounds_beyond_the_drafter_are_told() -> None:
    """C31. Would catch a drafter whose positions end in the middle of the answers, and nobody is told."""
    short = arm_run().model_copy(update={"rounds_without_drafts": 20, "rounds_beyond_drafter": 17})
    result = demo_result(runs=(arm_run("plain"), short))
    told = "Temperature 0 (greedy), all: AMTP: 17 of 100 rounds ran without drafts beyond the drafter's last position."
    (table,) = demo_tables(result)
    assert told in " ".join(shown(table, 80).split())
    assert told in warnings(result)


def test_names_are_shown_as_they_are() -> None:
    """Would catch an arm's name read as console markup and swallowed."""
    (table,) = demo_tables(demo_result(runs=(arm_run("[bold]k=3[/bold]", exact=False),)))
    assert "[bold]k=3[/bold] (lossy)" in shown(table, 120)


def test_a_coloured_answer_is_the_answer() -> None:
    """Would catch tokens lost, doubled, read as markup, or coloured as the other author's."""
    rounds = (TraceRound(tokens=(" [red]", "\n", " z"), horizon=3, accepted=2),)
    text = coloured_answer(answer_trace(rounds=rounds, opening="A"))
    assert text.plain == "A [red]\n z"
    styles = [(text.plain[span.start : span.end], str(span.style)) for span in text.spans]
    assert styles == [("A", TARGET_STYLE), (" [red]", DRAFT_STYLE), ("\n", DRAFT_STYLE), (" z", TARGET_STYLE)]
