"""Axes of figures that have one column for each node: nodes in order below, powers of ten at the left."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from day0.adapters.base.values import Number
from day0.tasks.numerics.record import Block

from ..words import number_text
from .svg import Canvas, Point, Scale, decades, logarithmic

WIDTH = 960
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 26, 50
_ZERO_ROOM = 20
_MAX_HOVER = 150
_MOST_TICKS = 24
_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_CHARACTER = 6.4
# Beyond these a value stands at the edge: no figure is legible over more powers of ten.
_SMALLEST, _LARGEST = 1e-20, 1e12

IMAGE_ROLES = ("vision", "projector")
Locate = Callable[[str], str]


@dataclass(frozen=True)
class Plane:
    """Where things stand in the drawing.

    Attributes:
        x: node's place in the order -> middle of its column.
        y: value -> height; 0 on a line of its own below the powers of ten.
        base: height of the lower axis.
        count: number of nodes.
    """

    x: Scale
    y: Scale
    base: float
    count: int

    @property
    def pitch(self) -> float:
        """Width of a column."""
        return (WIDTH - LEFT - RIGHT) / max(self.count, 1)

    def point(self, place: int, value: float | None) -> Point | None:
        """Where the value of a node stands; None for none."""
        return None if value is None else (self.x(place), self.y(value))


def plane(canvas: Canvas, count: int, values: Sequence[float]) -> Plane:
    """Draws the scale of powers of ten that the values span, and a line for 0 where one of them is.

    Args:
        canvas: to draw on.
        count: of nodes.
        values: at least one of them above 0.
    """
    base = float(canvas.height - BOTTOM)
    zero = any(value == 0 for value in values)
    floor = base - (_ZERO_ROOM if zero else 0)
    low, high = _decade_range([value for value in values if value > 0])
    inner = logarithmic(low, high, floor, TOP)
    for exponent in decades(low, high):
        height = inner(10.0**exponent)
        canvas.line("grid", (LEFT, height), (WIDTH - RIGHT, height))
        label = f"1e{exponent}" if abs(exponent) > 2 else f"{10.0**exponent:g}"
        canvas.text("tick", (LEFT - 8, height + 4), label, anchor="end")
    if zero:
        canvas.text("tick", (LEFT - 8, base), "0", anchor="end")
    pitch = (WIDTH - LEFT - RIGHT) / max(count, 1)
    return Plane(
        x=lambda place: LEFT + (place + 0.5) * pitch,
        y=lambda value: inner(value) if value > 0 else base - 4,
        base=base,
        count=count,
    )


def finite(value: Number) -> float | None:
    """The number, or None where it is none."""
    number = float(value)
    return number if math.isfinite(number) else None


def node_axis(canvas: Canvas, blocks: Sequence[Block], at: Plane) -> None:
    """The names of the nodes as far as there is room, under them what numbered ones are numbers of."""
    canvas.line("axis", (LEFT, at.base), (WIDTH - RIGHT, at.base))
    step = next((step for step in _STEPS if step * _MOST_TICKS >= len(blocks)), len(blocks) // _MOST_TICKS)
    labels = [_tick(block) for block in blocks]
    # The ends first, then what has a name of its own, then every so many of the numbered.
    wanted = [0, len(blocks) - 1]
    wanted += [i for i, words in enumerate(labels) if not words.isdecimal()]
    wanted += [i for i, words in enumerate(labels) if words.isdecimal() and int(words[-9:]) % step == 0]
    taken: list[tuple[float, float]] = []
    for i in dict.fromkeys(wanted):
        half = 4 + _CHARACTER / 2 * len(labels[i])
        middle = min(max(at.x(i), LEFT + half - 4), WIDTH - half)
        if all(abs(middle - place) >= half + other for place, other in taken):
            canvas.text("tick", (middle, at.base + 16), labels[i], anchor="middle")
            taken.append((middle, half))
    _stacks(canvas, blocks, at)


def _tick(block: Block) -> str:
    """A projector of several stands among blocks with numbers of their own, and has its list's name."""
    words = short_name(block.name)
    listed = words.isdecimal() and block.role == "projector"
    return short_name(block.name.rpartition(".")[0]) if listed else words


def _stacks(canvas: Canvas, blocks: Sequence[Block], at: Plane) -> None:
    """What the axis is; where there are several stacks of numbered nodes, each with its name."""
    runs = [run for run in _numbered_runs(blocks) if run[1] > run[0]]
    if len({name for *_, name in runs}) < 2:
        middle = (LEFT + WIDTH - RIGHT) / 2
        canvas.text("axis-title", (middle, at.base + 38), "node, in the order of a forward", anchor="middle")
        return
    for first, last, name in runs:
        left, right = at.x(first), at.x(last)
        canvas.line("axis", (left, at.base + 23), (right, at.base + 23))
        if _CHARACTER * len(name[-30:]) <= right - left + 2 * at.pitch:
            canvas.text("axis-title", ((left + right) / 2, at.base + 38), name[-30:], anchor="middle")


def _numbered_runs(blocks: Sequence[Block]) -> Iterator[tuple[int, int, str]]:
    """First and last place, and the name of the stack, of each run of numbered nodes of one stack."""
    start, stack = 0, ""
    for place, name in enumerate([*(block.name for block in blocks), ""]):
        above, _, last = name.rpartition(".")
        here = above if last.isdecimal() else ""
        if here != stack:
            if stack:
                yield start, place - 1, stack
            start, stack = place, here


def image_nodes(blocks: Sequence[Block]) -> int:
    """How many nodes at the start are those of an image: they end in features, not where the text begins."""
    places = (place for place, block in enumerate(blocks) if block.role not in IMAGE_ROLES)
    return next(places, len(blocks))


def spans(blocks: Sequence[Block]) -> Sequence[tuple[int, int]]:
    """First place and the place after the last of each stream: image, then text; one where there is one."""
    split = image_nodes(blocks)
    return [span for span in ((0, split), (split, len(blocks))) if span[0] < span[1]]


def divide(canvas: Canvas, blocks: Sequence[Block], at: Plane) -> None:
    """A line between the nodes of the image and those of the text, with what each side is."""
    split = image_nodes(blocks)
    if not 0 < split < len(blocks):
        return
    edge = at.x(split) - at.pitch / 2
    canvas.line("axis", (edge, TOP - 16), (edge, at.base))
    canvas.text("axis-title", (edge - 8, TOP - 7), "image", anchor="end")
    canvas.text("axis-title", (edge + 8, TOP - 7), "text")


def short_name(name: str) -> str:
    """`model.layers.17` -> `17`, `model.embed_tokens` -> `embed`, `lm_head` -> `head`."""
    last = name[-100:].rsplit(".", 1)[-1]
    if last.isdecimal():
        return last
    words = [word for word in re.split(r"[_\W]+", last) if word]
    return next((word for word in words if word not in ("lm", "model")), last)[:8]


def hover(
    canvas: Canvas, blocks: Sequence[Block], at: Plane, row_id: Locate, *, faulty: bool = False
) -> None:
    """An invisible column over each node that names it and leads to its row.

    In a deep model only over those that do not pass; only over those wrong by themselves where `faulty`.
    """
    for i, block in enumerate(blocks):
        target = row_id(block.name)
        wanted = block.verdict == "fail" if faulty else len(blocks) <= _MAX_HOVER or block.verdict != "pass"
        if not target or not wanted:
            continue
        local = number_text(block.local.rel_l2) if block.local else "not run"
        own = number_text(block.propagated.rel_l2) if block.propagated else "not run"
        told = f"{block.name}: {block.verdict}; local {local}, propagated {own}"
        corner = (at.x(i) - at.pitch / 2, TOP)
        canvas.link(target, "hover", corner, at.pitch, at.base - TOP, title=told)


def _decade_range(values: Sequence[float]) -> tuple[float, float]:
    kept = [min(max(value, _SMALLEST), _LARGEST) for value in values]
    low, high = 10.0 ** math.floor(math.log10(min(kept))), 10.0 ** math.ceil(math.log10(max(kept)))
    return low, high if high > low else low * 10
