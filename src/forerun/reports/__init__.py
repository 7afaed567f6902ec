"""Result files in, tables and one self-contained page out; this layer measures nothing and knows no model."""

from forerun.reports.comparison import comparison_markdown, comparison_tables
from forerun.reports.files import parse_result, read_result, write_result
from forerun.reports.ladder import ladder_tables
from forerun.reports.markdown import markdown_table
from forerun.reports.page import render_page, write_page
from forerun.reports.terminal import colour_legend, coloured_answer, coloured_round, demo_tables
from forerun.reports.wording import headline, sentences, warnings

__all__ = [
    "colour_legend",
    "coloured_answer",
    "coloured_round",
    "comparison_markdown",
    "comparison_tables",
    "demo_tables",
    "headline",
    "ladder_tables",
    "markdown_table",
    "parse_result",
    "read_result",
    "render_page",
    "sentences",
    "warnings",
    "write_page",
    "write_result",
]
