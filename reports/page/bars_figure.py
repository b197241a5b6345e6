"""Bars: parts of a whole side by side, and one column for each layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from .svg import Canvas, linear, round_ticks

_WIDTH = 960


@dataclass(frozen=True)
class Part:
    """One part of a bar: its class, its amount, what it is called on hover."""

    css: str
    amount: float
    title: str


@dataclass(frozen=True)
class Bar:
    """One bar: what it is, its parts, and what stands at its end."""

    label: str
    parts: Sequence[Part]
    remark: str = ""


def stacked_bars(bars: Sequence[Bar], label: str, *, whole: float | None = None, margin: int = 150) -> Markup:
    """Bars on one common scale.

    Args:
        bars: from top to bottom.
        label: what the drawing shows.
        whole: the amount that fills the width; each bar fills it by itself where None.
        margin: room for the labels at the left.
    """
    pitch, thick = 34, 18
    canvas = Canvas(_WIDTH, pitch * len(bars) + 6)
    room = _WIDTH - margin - (170 if any(bar.remark for bar in bars) else 4)
    for index, bar in enumerate(bars):
        top = index * pitch + 8
        total = whole or sum(part.amount for part in bar.parts) or 1
        canvas.text("label", (margin - 12, top + 13), bar.label, anchor="end")
        canvas.rect("track", (margin, top), room, thick)
        left = float(margin)
        for part in bar.parts:
            width = max(0.0, min(part.amount / total * room, margin + room - left))
            if width > 0:
                canvas.rect(f"part {part.css}", (left, top), width, thick, title=part.title)
            left += width
        canvas.text("remark", (margin + room + 10, top + 13), bar.remark)
    return canvas.markup(label, fits=True)


def layer_columns(
    columns: Sequence[Part], label: str, amount_text: Callable[[float], str], axis: str
) -> Markup:
    """One column for each layer, in order."""
    height, left, right, top, bottom = 200, 76, 12, 12, 40
    canvas = Canvas(_WIDTH, height)
    ticks = round_ticks(max((column.amount for column in columns), default=0.0))
    y = linear(0, ticks[-1], height - bottom, top)
    for tick in ticks:
        canvas.line("grid", (left, y(tick)), (_WIDTH - right, y(tick)))
        canvas.text("tick", (left - 8, y(tick) + 4), amount_text(tick).replace(".00 ", " "), anchor="end")
    pitch = (_WIDTH - left - right) / max(len(columns), 1)
    gap = min(4.0, pitch * 0.2)
    step = max(1, -(-len(columns) // 24))
    for index, column in enumerate(columns):
        corner = (left + index * pitch + gap / 2, y(column.amount))
        canvas.rect(
            f"part {column.css}", corner, pitch - gap, height - bottom - y(column.amount), title=column.title
        )
        if index % step == 0:
            canvas.text(
                "tick", (left + (index + 0.5) * pitch, height - bottom + 16), str(index), anchor="middle"
            )
    canvas.line("axis", (left, height - bottom), (_WIDTH - right, height - bottom))
    canvas.text("axis-title", ((left + _WIDTH - right) / 2, height - 6), axis, anchor="middle")
    return canvas.markup(label, fits=True)
