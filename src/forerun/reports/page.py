"""A result as one HTML page that needs nothing else: no script, no font, no picture, no request."""

from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from forerun.reports import charts, wording
from forerun.reports.files import write_text
from forerun.reports.schema import PLAIN, DemoResult

NUM_ARM_COLOURS = 5
"""Colours that the style sheet defines for arms other than plain; with more arms they repeat."""


def render_page(result: DemoResult) -> str:
    """The page as text; every string of the result is escaped."""
    environment = Environment(
        loader=PackageLoader("forerun.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    kinds = arm_kinds(result)
    return environment.get_template("page.html.jinja").render(
        result=result, kinds=kinds, charts=charts, wording=wording, plain=PLAIN
    )


def write_page(result: DemoResult, path: Path) -> None:
    """Write the page whole or not at all.

    Raises:
        ForerunError: when the file cannot be written.
    """
    write_text(render_page(result), path)


def arm_kinds(result: DemoResult) -> dict[str, str]:
    """The style class that colours each arm: plain decoding is grey, the others take colours in turn."""
    others = [arm for arm in result.arms if arm != PLAIN]
    return {PLAIN: "plain"} | {arm: f"arm-{index % NUM_ARM_COLOURS}" for index, arm in enumerate(others)}
