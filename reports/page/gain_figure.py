"""Coherent error by depth: the gain of every node's output against its tolerance."""

from __future__ import annotations

from collections.abc import Sequence

from day0.tasks.numerics.record import Block
from day0.tasks.thresholds import NUMERICS_GAIN_SCORE

from .depth_axes import LEFT, RIGHT, TOP, WIDTH, Locate, divide, finite, hover, node_axis, plane
from .parts import Figure, Key
from .svg import Canvas, Point

_HEIGHT = 210
_LEAST = 0.1
"""Lower end of the scale: a gain that is a tenth of its standard error says nothing."""


def gain_figure(blocks: Sequence[Block], figure_id: str, row_id: Locate) -> Figure | None:
    """Gain score of every node; shows coherent errors that relative L2 cannot. None where none applies."""
    scores = [finite(block.local.gain_score) if block.local else None for block in blocks]
    known = [max(abs(score), _LEAST) for score in scores if score is not None]
    if not known:
        return None
    canvas = Canvas(WIDTH, _HEIGHT)
    at = plane(canvas, len(blocks), [*known, _LEAST, NUMERICS_GAIN_SCORE * 2])
    limit = at.y(NUMERICS_GAIN_SCORE)
    canvas.line("limit", (LEFT, limit), (WIDTH - RIGHT, limit))
    stems: list[Point | None] = []
    for place, (block, score) in enumerate(zip(blocks, scores, strict=True)):
        height = at.y(max(abs(score), _LEAST)) if score is not None else TOP + 6
        if score is not None:
            stems += [(at.x(place), at.base), (at.x(place), height), None]
            canvas.dot("dot", (at.x(place), height), 2.5)
        if block.verdict == "fail":
            canvas.cross("mark fail", (at.x(place), height))
        elif block.verdict == "unverified":
            canvas.text("tick gap", (at.x(place), at.base - 5), "?", anchor="middle")
    canvas.path("stem", stems)
    divide(canvas, blocks, at)
    node_axis(canvas, blocks, at)
    hover(canvas, blocks, at, row_id, faulty=True)
    wrong = any(block.verdict == "fail" for block in blocks)
    return Figure(
        id=figure_id,
        caption="Coherent error by depth: mean gain of a node's output over its standard error. "
        "A wrong scale stands out here long before it does in the distance above.",
        svg=canvas.markup(f"Gain score of {len(known)} nodes, at most {max(known):.3g}"),
        legend=(
            Key("k-local", "gain score, local"),
            Key("k-limit", f"tolerance, {NUMERICS_GAIN_SCORE:g}"),
            *([Key("k-fail", "wrong by itself")] if wrong else []),
        ),
    )
