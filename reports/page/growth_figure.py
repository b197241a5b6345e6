"""Growth with batch and length: measured memory beside what config and headers foretold."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from day0.tasks.scale.record import Growth

from ..words import bytes_text
from .svg import Canvas, linear, round_ticks

_WIDTH, _HEIGHT = 960, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 16, 14, 44
_WIDEST = 120


def growth_drawing(points: Sequence[Growth]) -> Markup | None:
    """One bar a point, as high as the memory it took; a dashed line across it where it was expected."""
    if not points:
        return None
    most = max(max(point.memory_bytes, point.expected_memory_bytes) for point in points)
    ticks = round_ticks(most)
    y = linear(0, ticks[-1], _HEIGHT - _BOTTOM, _TOP)
    canvas = Canvas(_WIDTH, _HEIGHT)
    for tick in ticks:
        canvas.line("grid", (_LEFT, y(tick)), (_WIDTH - _RIGHT, y(tick)))
        canvas.text("tick", (_LEFT - 8, y(tick) + 4), bytes_text(tick), anchor="end")
    pitch = min(_WIDEST, (_WIDTH - _LEFT - _RIGHT) / len(points))
    for place, point in enumerate(points):
        left, wide = _LEFT + (place + 0.25) * pitch, pitch / 2
        top = y(point.memory_bytes)
        name = f"{point.batch} \N{MULTIPLICATION SIGN} {point.length}"
        told = f"{name}: {bytes_text(point.memory_bytes)}, expected {bytes_text(point.expected_memory_bytes)}"
        canvas.rect("part c0", (left, top), wide, _HEIGHT - _BOTTOM - top, title=told)
        expected = y(point.expected_memory_bytes)
        canvas.line("limit", (left - pitch * 0.15, expected), (left + wide + pitch * 0.15, expected))
        canvas.text("tick", (left + wide / 2, _HEIGHT - _BOTTOM + 16), name, anchor="middle")
    canvas.line("axis", (_LEFT, _HEIGHT - _BOTTOM), (_WIDTH - _RIGHT, _HEIGHT - _BOTTOM))
    middle = _LEFT + pitch * len(points) / 2
    canvas.text(
        "axis-title",
        (middle, _HEIGHT - 8),
        "sequences \N{MULTIPLICATION SIGN} prompt tokens",
        anchor="middle",
    )
    return canvas.markup(f"Memory of {len(points)} points of batch and length, at most {bytes_text(most)}")
