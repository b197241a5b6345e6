"""Inline SVG without styles: shapes carry classes, which the stylesheet colours, light or dark."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup, escape

from .text import clean

Point = tuple[float, float]


@dataclass
class Canvas:
    """Collects shapes; `markup` closes the drawing.

    Attributes:
        width: of the coordinate system; the drawing fills the width of the page.
        height: of the coordinate system.
    """

    width: int
    height: int
    _shapes: list[str] = field(default_factory=list)

    def line(self, css: str, start: Point, end: Point) -> None:
        """A straight line."""
        ends = f'x1="{_n(start[0])}" y1="{_n(start[1])}" x2="{_n(end[0])}" y2="{_n(end[1])}"'
        self._shapes.append(f'<line class="{css}" {ends}/>')

    def rect(self, css: str, corner: Point, width: float, height: float, *, title: str = "") -> None:
        """A rectangle from its upper left corner."""
        attributes = f'x="{_n(corner[0])}" y="{_n(corner[1])}" width="{_n(width)}" height="{_n(height)}"'
        self._shapes.append(f'<rect class="{css}" {attributes}{_close("rect", title)}')

    def path(self, css: str, points: Sequence[Point | None], *, closed: bool = False) -> None:
        """A line through the points; None lifts the pen."""
        commands, pen = [], "M"
        for point in points:
            if point is None:
                pen = "M"
                continue
            commands.append(f"{pen}{_n(point[0])} {_n(point[1])}")
            pen = "L"
        if commands:
            self._shapes.append(f'<path class="{css}" d="{"".join(commands)}{"Z" if closed else ""}"/>')

    def cross(self, css: str, centre: Point, size: float = 5) -> None:
        """A diagonal cross."""
        x, y = centre
        self.path(
            css,
            [(x - size, y - size), (x + size, y + size), None, (x - size, y + size), (x + size, y - size)],
        )

    def diamond(self, css: str, centre: Point, size: float = 4) -> None:
        """A square that stands on a corner."""
        x, y = centre
        self.path(css, [(x, y - size), (x + size, y), (x, y + size), (x - size, y)], closed=True)

    def dot(self, css: str, centre: Point, radius: float = 3, *, title: str = "") -> None:
        """A filled circle."""
        attributes = f'cx="{_n(centre[0])}" cy="{_n(centre[1])}" r="{_n(radius)}"'
        self._shapes.append(f'<circle class="{css}" {attributes}{_close("circle", title)}')

    def text(self, css: str, place: Point, words: str, *, anchor: str = "start") -> None:
        """A short text; `anchor` is `start`, `middle` or `end`."""
        self._shapes.append(
            f'<text class="{css}" x="{_n(place[0])}" y="{_n(place[1])}" text-anchor="{anchor}">'
            f"{escape(clean(words, 60))}</text>"
        )

    def link(self, href: str, css: str, corner: Point, width: float, height: float, *, title: str) -> None:
        """A rectangle that leads to a place on the page and tells more on hover."""
        self._shapes.append(f'<a href="#{escape(href)}" tabindex="-1">')
        self.rect(css, corner, width, height, title=title)
        self._shapes.append("</a>")

    def markup(self, label: str, *, fits: bool = False) -> Markup:
        """The whole drawing.

        Args:
            label: says in words what it shows.
            fits: whether it shrinks to the width of a small screen instead of being moved along.
        """
        css = "plot fits" if fits else "plot"
        # Every text and attribute from outside went through `escape` on its way in.
        return Markup(
            f'<svg class="{css}" viewBox="0 0 {self.width} {self.height}" role="img" '
            f'aria-label="{escape(clean(label, 400))}">{"".join(self._shapes)}</svg>'
        )


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _close(tag: str, title: str) -> str:
    return f"><title>{escape(clean(title, 300))}</title></{tag}>" if title else "/>"


Scale = Callable[[float], float]


def linear(low: float, high: float, start: float, end: float) -> Scale:
    """Maps [low, high] onto [start, end]; a range of no width maps onto its start."""
    span = high - low
    return lambda value: start if span == 0 else start + (value - low) / span * (end - start)


def logarithmic(low: float, high: float, start: float, end: float) -> Scale:
    """Maps [low, high], both positive, onto [start, end] by powers of ten; the rest stays on the edges."""
    inner = linear(math.log10(low), math.log10(high), start, end)
    return lambda value: inner(math.log10(min(max(value, low), high)))


def decades(low: float, high: float) -> Sequence[int]:
    """Exponents of the powers of ten from `low` to `high`, thinned out to at most seven."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    step = max(1, math.ceil((last - first) / 6))
    return range(first, last + 1, step)


def round_ticks(high: float, count: int = 4) -> Sequence[float]:
    """Round numbers from 0 to at least `high`."""
    if high <= 0 or not math.isfinite(high):
        return [0.0, 1.0]
    rough = high / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= rough * 0.999)
    return [step * index for index in range(math.ceil(high / step - 1e-9) + 1)]
