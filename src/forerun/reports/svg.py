"""Pieces of a chart as inline SVG: scales, axes, marks. Colours come from the page's style sheet, by class.

Every text and number goes through `Markup.format`, which escapes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import final

from markupsafe import Markup

WIDTH = 420
"""Drawing units; a chart takes its column's width, so that letters stay readable on a phone."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A straight map from data to drawing units.

    Attributes:
        low: value at `start`.
        high: value at `end`; above `low`.
        start: drawing position of `low`.
        end: drawing position of `high`; smaller than `start` on a vertical axis.
    """

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Drawing position of a value; values outside are drawn at the nearest end."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, count: int) -> tuple[float, ...]:
        """At most about `count` round values between `low` and `high`."""
        step = round_step((self.high - self.low) / count)
        first, last = ceil(self.low / step - 1e-9), floor(self.high / step + 1e-9)
        return tuple(index * step for index in range(first, last + 1))


def round_step(step: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is not below `step`."""
    power: float = 10.0 ** floor(log10(step))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step * (1 - 1e-9))


def drawing(height: float, description: str, parts: Sequence[Markup]) -> Markup:
    """A whole chart; `description` is what a screen reader says."""
    return Markup('<svg viewBox="0 0 {} {:g}" role="img" aria-label="{}">{}</svg>').format(
        WIDTH, height, description, Markup("\n").join(parts)
    )


def text(x: float, y: float, content: str, *, anchor: str = "middle", kind: str = "label") -> Markup:
    """A line of text; `anchor` is "start", "middle" or "end"."""
    return Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}" class="{}">{}</text>').format(
        x, y, anchor, kind, content
    )


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    """A straight stroke."""
    return Markup('<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" class="{}"/>').format(x1, y1, x2, y2, kind)


def polyline(points: Sequence[tuple[float, float]], kind: str) -> Markup:
    """A stroke through points."""
    coordinates = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return Markup('<polyline points="{}" class="{}"/>').format(coordinates, kind)


def rectangle(x: float, y: float, width: float, height: float, kind: str) -> Markup:
    """A filled box."""
    return Markup('<rect x="{:.2f}" y="{:.1f}" width="{:.2f}" height="{:.1f}" class="{}"/>').format(
        x, y, width, height, kind
    )


def titled(title: str, shapes: Markup) -> Markup:
    """Shapes with a text that shows when pointed at."""
    return Markup("<g><title>{}</title>{}</g>").format(title, shapes)


def dot(x: float, y: float, kind: str, title: str) -> Markup:
    """A round mark with a text that shows when pointed at."""
    return titled(title, Markup('<circle cx="{:.1f}" cy="{:.1f}" r="4.5" class="{}"/>').format(x, y, kind))


def square(x: float, y: float, kind: str, title: str) -> Markup:
    """A square mark with a text that shows when pointed at."""
    return titled(title, rectangle(x - 4.5, y - 4.5, 9, 9, f"mark {kind}"))


def left_axis(scale: Scale, values: Sequence[float], labels: Sequence[str], x_from: float, x_to: float) -> list[Markup]:
    """Grid lines across the chart, each with its label at the left."""
    parts = []
    for value, label in zip(values, labels, strict=True):
        parts.append(line(x_from, scale(value), x_to, scale(value), "grid"))
        parts.append(text(x_from - 7, scale(value) + 4, label, anchor="end"))
    return parts


def bottom_axis(scale: Scale, values: Sequence[float], labels: Sequence[str], y: float) -> list[Markup]:
    """Labels below the chart."""
    return [text(scale(value), y + 17, label) for value, label in zip(values, labels, strict=True)]
