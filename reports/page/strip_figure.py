"""A strip of small squares: one for each node and phase, its outcome as colour and as shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from .svg import Canvas

_WIDTH, _LEFT = 960, 90
_NAMED_WIDTH = 100


@dataclass(frozen=True)
class Square:
    """One square: its name, verdict word, what it says on hover, the id it leads to (empty for none)."""

    name: str
    verdict: str
    title: str
    href: str = ""


def strip(rows: Sequence[tuple[str, Sequence[Square]]], label: str) -> Markup:
    """Rows of squares under one another; failures carry a cross, what was not decided a dot.

    Few squares are wide enough for their names.
    """
    longest = max((len(squares) for _, squares in rows), default=1)
    size = min(26.0, (_WIDTH - _LEFT) / max(longest, 1))
    gap = min(3.0, size * 0.15)
    named = longest * _NAMED_WIDTH <= _WIDTH - _LEFT
    pitch = _NAMED_WIDTH if named else size
    canvas = Canvas(_WIDTH, round(len(rows) * (size + 6) + 4))
    for index, (name, squares) in enumerate(rows):
        top = index * (size + 6) + 2
        canvas.text("label", (_LEFT - 12, top + size / 2 + 4), name, anchor="end")
        for place, square in enumerate(squares):
            corner, wide, side = (_LEFT + place * pitch, top), pitch - gap, size - gap
            css = f"square v-{square.verdict}"
            if square.href:
                canvas.link(square.href, css, corner, wide, side, title=square.title)
            else:
                canvas.rect(css, corner, wide, side, title=square.title)
            if named:
                canvas.text("on", (corner[0] + 24, corner[1] + side / 2 + 4), square.name)
            centre = (corner[0] + side / 2, corner[1] + side / 2)
            if square.verdict == "fail":
                canvas.cross("glyph", centre, side * 0.22)
            elif square.verdict not in ("pass", "warn"):
                canvas.dot("glyph-dot", centre, side * 0.12)
    return canvas.markup(label)
