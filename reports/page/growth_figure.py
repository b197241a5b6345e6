"""Growth with batch and length: measured memory against what config and headers foretold."""

from __future__ import annotations

from collections.abc import Sequence

from day0.tasks.scale.record import Growth
from markupsafe import Markup

from ..words import bytes_text, exact_text
from .svg import Canvas, Point, linear, round_ticks

_WIDTH, _HEIGHT = 960, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 16, 14, 44


def growth_drawing(points: Sequence[Growth]) -> Markup | None:
    """Memory over tokens held in the cache, one line for what was expected, one point a measurement."""
    if not points:
        return None
    ordered = sorted(points, key=lambda point: (tokens_held(point), point.batch))
    most = max(max(point.memory_bytes, point.expected_memory_bytes) for point in ordered)
    across, up = round_ticks(max(tokens_held(point) for point in ordered), 6), round_ticks(most)
    x = linear(0, across[-1], _LEFT, _WIDTH - _RIGHT)
    y = linear(0, up[-1], _HEIGHT - _BOTTOM, _TOP)
    canvas = Canvas(_WIDTH, _HEIGHT)
    for tick in up:
        canvas.line("grid", (_LEFT, y(tick)), (_WIDTH - _RIGHT, y(tick)))
        canvas.text("tick", (_LEFT - 8, y(tick) + 4), bytes_text(tick), anchor="end")
    for tick in across:
        canvas.text("tick", (x(tick), _HEIGHT - _BOTTOM + 16), exact_text(round(tick)), anchor="middle")
    canvas.line("axis", (_LEFT, _HEIGHT - _BOTTOM), (_WIDTH - _RIGHT, _HEIGHT - _BOTTOM))
    expected: list[Point | None] = [(x(tokens_held(p)), y(p.expected_memory_bytes)) for p in ordered]
    canvas.path("limit", expected)
    for point in ordered:
        place = f"batch {point.batch}, {point.length} + {point.new_tokens} tokens"
        told = f"{place}: {bytes_text(point.memory_bytes)}"
        canvas.dot("dot big", (x(tokens_held(point)), y(point.memory_bytes)), 5, title=told)
    canvas.text(
        "axis-title",
        ((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 8),
        "tokens held, all sequences",
        anchor="middle",
    )
    return canvas.markup(f"Memory of {len(ordered)} points of batch and length, at most {bytes_text(most)}")


def tokens_held(point: Growth) -> int:
    """Tokens in the cache at the end of a point."""
    return point.batch * (point.length + point.new_tokens)
