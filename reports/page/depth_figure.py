"""Error by depth: every node in order, its distance from the reference against what rounding explains."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from day0.tasks.numerics.record import Block, Metrics
from day0.tasks.thresholds import NUMERICS_RATIO

from .depth_axes import (
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Locate,
    Plane,
    divide,
    finite,
    hover,
    node_axis,
    plane,
    short_name,
    spans,
)
from .depth_reading import reading
from .parts import Figure, Key
from .svg import Canvas, Point

_HEIGHT = 340
_DOTS_UP_TO = 60
_MOST_LABELS = 12
_DIAMOND = 11
"""Least distance of two diamonds; between them the line goes on."""
_CHARACTER = 6.6

Box = tuple[float, float, float]
"""Left, right and height of a text."""


def error_figure(
    blocks: Sequence[Block], figure_id: str, row_id: Locate, first_fault: str = ""
) -> Figure | None:
    """Relative L2 of every node, local and propagated, over the noise; None where nothing was compared.

    Args:
        blocks: nodes in order.
        figure_id: id of the figure.
        row_id: name of a node -> id of its row, empty where none is shown.
        first_fault: name of the node that is labelled in full.
    """
    values = [value for block in blocks for value in errors(block) if value is not None]
    if not any(value > 0 for value in values):
        return None
    noises = [noise(block.local) for block in blocks]
    onward = [noise(block.propagated) for block in blocks]
    known = [one for one in (*noises, *onward) if one is not None]
    limits = [one * NUMERICS_RATIO for one in noises if one is not None]
    canvas = Canvas(WIDTH, _HEIGHT)
    at = plane(canvas, len(blocks), [*values, *known, *limits])
    parts = spans(blocks)
    for css, band in (("noise own", onward), ("noise", noises)):
        for points in _runs(band, at, parts):
            left, right = (
                max(points[0][0] - at.pitch / 2, LEFT),
                min(points[-1][0] + at.pitch / 2, WIDTH - RIGHT),
            )
            edge = [(left, points[0][1]), *points, (right, points[-1][1])]
            canvas.path(css, [(left, at.base), *edge, (right, at.base)], closed=True)
    _limit(canvas, noises, at, parts)
    divide(canvas, blocks, at)
    _lines(canvas, blocks, at)
    _marks(canvas, blocks, at, first_fault)
    node_axis(canvas, blocks, at)
    hover(canvas, blocks, at, row_id)
    label = f"Relative L2 error of {len(blocks)} nodes, from {min(values):.1e} to {max(values):.1e}"
    return Figure(
        id=figure_id,
        caption="Error by depth: relative L2 distance from the reference, node by node. The local error is "
        "judged: below the dashed line the precision itself explains it.",
        svg=canvas.markup(label),
        legend=list(_legend(blocks)),
        reading=reading(blocks, first_fault),
    )


def errors(block: Block) -> tuple[float | None, float | None]:
    """Relative L2 of a node by itself and on the target's own stream; None where it is no number."""
    return (
        finite(block.local.rel_l2) if block.local else None,
        finite(block.propagated.rel_l2) if block.propagated else None,
    )


def noise(metrics: Metrics | None) -> float | None:
    """The noise's relative L2, from the target's and its ratio to it; None where that is not known."""
    if metrics is None:
        return None
    error, ratio = finite(metrics.rel_l2), finite(metrics.ratio)
    found = error / ratio if error is not None and ratio else 0.0
    return found if found > 0 and math.isfinite(found) else None


def _legend(blocks: Sequence[Block]) -> Iterator[Key]:
    yield Key("k-local", "local: node alone, on the reference's input")
    yield Key("k-prop", "propagated: on the target's own stream")
    yield Key("k-noise", "rounding of this precision in the node alone")
    if any(noise(block.propagated) for block in blocks):
        yield Key("k-noise-own", "the same, added up to here")
    yield Key("k-limit", f"tolerance, {NUMERICS_RATIO:g} times the rounding")
    shown = {block.verdict for block in blocks}
    if "fail" in shown:
        yield Key("k-fail", "wrong by itself")
    if "inherited" in shown:
        yield Key("k-inherited", "off only by what it received")
    if "unverified" in shown:
        yield Key("k-gap", "not compared")


def _runs(
    values: Sequence[float | None], at: Plane, parts: Sequence[tuple[int, int]]
) -> Iterator[list[Point]]:
    """Neighbouring nodes of one stream that have a value, each run as points."""
    for start, end in parts:
        run: list[Point] = []
        for place, value in enumerate([*values[start:end], None], start):
            if value is not None:
                run.append((at.x(place), at.y(value)))
            elif run:
                yield run
                run = []


def _limit(
    canvas: Canvas, noises: Sequence[float | None], at: Plane, parts: Sequence[tuple[int, int]]
) -> None:
    for points in _runs([None if one is None else one * NUMERICS_RATIO for one in noises], at, parts):
        (left, start), (right, end) = points[0], points[-1]
        half = at.pitch / 2
        canvas.path("limit", [(left - half, start), *points, (right + half, end)])


def _lines(canvas: Canvas, blocks: Sequence[Block], at: Plane) -> None:
    pairs = [errors(block) for block in blocks]
    for which, css, dot in ((1, "line prop", "dot-prop"), (0, "line local", "dot")):
        for start, end in spans(blocks):
            points = [at.point(place, pairs[place][which]) for place in range(start, end)]
            canvas.path(css, points)
            for place, point in enumerate(points):
                alone = not any(points[max(0, place - 1) : place]) and not any(points[place + 1 : place + 2])
                if point is not None and (alone or (which == 0 and len(blocks) <= _DOTS_UP_TO)):
                    canvas.dot(dot, point, 2.6)


def _marks(canvas: Canvas, blocks: Sequence[Block], at: Plane, first_fault: str) -> None:
    """Crosses, diamonds and question marks; then names of the faulty as far as there is room."""
    crosses: list[tuple[Block, Point]] = []
    apart = math.ceil(_DIAMOND / at.pitch)
    drawn = -apart
    for place, block in enumerate(blocks):
        local, own = errors(block)
        if block.verdict == "fail":
            point = (at.x(place), at.y(local) if local is not None else TOP + 6)
            canvas.line("drop", point, (point[0], at.base))
            canvas.cross("mark fail", point)
            crosses.append((block, point))
        elif block.verdict == "inherited" and own is not None:
            if place - drawn >= apart:
                canvas.diamond("mark inherited", (at.x(place), at.y(own)))
                drawn = place
        elif block.verdict == "unverified":
            canvas.text("tick gap", (at.x(place), at.base - 5), "?", anchor="middle")
    taken: list[Box] = []
    # The first fault has its name whatever else there is to be named.
    for block, point in sorted(crosses, key=lambda item: item[0].name != first_fault)[:_MOST_LABELS]:
        whole = block.name == first_fault
        _label(canvas, block.name[:48] if whole else short_name(block.name), point, taken, whole=whole)


def _label(canvas: Canvas, words: str, point: Point, taken: list[Box], *, whole: bool) -> None:
    """A name beside its cross, unless another stands there."""
    x, y = point
    width, left_of = _CHARACTER * len(words) + 4, x > (LEFT + WIDTH) / 2
    start = x - 9 - width if left_of else x + 9
    height = max(y - 8, 14.0)
    box = (start, start + width, height)
    free = all(box[1] < left or box[0] > right or abs(height - at) > 13 for left, right, at in taken)
    if whole or free:
        taken.append(box)
        canvas.text(
            "name", (x - 9 if left_of else x + 9, height), words, anchor="end" if left_of else "start"
        )
