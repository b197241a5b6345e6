"""Error by depth: every node in order, its distance from the reference against what rounding explains."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from day0.adapters.base.values import Number
from day0.tasks.numerics.record import Block, Metrics
from day0.tasks.thresholds import NUMERICS_GAIN_SCORE, NUMERICS_RATIO

from ..words import number_text
from .parts import Figure, Key
from .svg import Canvas, Point, Scale, decades, logarithmic

_WIDTH, _HEIGHT = 960, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 12, 14, 44
_GAIN_HEIGHT = 190
_MAX_HOVER = 150

Locate = Callable[[str], str]


def error_figure(blocks: Sequence[Block], figure_id: str, row_id: Locate) -> Figure | None:
    """Relative L2 of every node, local and propagated, over the noise; None where nothing was compared."""
    values = [value for block in blocks for value in _errors(block) if value is not None and value > 0]
    if not values:
        return None
    noises = [_noise(block.local) for block in blocks]
    known = [noise for noise in noises if noise is not None and noise > 0]
    low, high = _decade_range([*values, *known, *(noise * NUMERICS_RATIO for noise in known)])
    canvas = Canvas(_WIDTH, _HEIGHT)
    x, y = _columns(len(blocks)), logarithmic(low, high, _HEIGHT - _BOTTOM, _TOP)
    _log_axis(canvas, low, high, y)
    _noise_band(canvas, noises, x, y)
    for css, pick in (("line prop", 1), ("line local", 0)):
        canvas.path(css, [_point(x(i), _errors(block)[pick], y) for i, block in enumerate(blocks)])
    _marks(canvas, blocks, x, lambda block: _errors(block)[0], y)
    _node_axis(canvas, blocks, x, _HEIGHT)
    _hover(canvas, blocks, x, row_id)
    return Figure(
        id=figure_id,
        caption="Error by depth: relative L2 distance from the reference, node by node. The local error is "
        "judged: below the dashed line the precision itself explains it.",
        svg=canvas.markup(
            f"Relative L2 error of {len(blocks)} nodes, from {min(values):.1e} to {max(values):.1e}"
        ),
        legend=(
            Key("k-local", "local: node alone, on the reference's input"),
            Key("k-prop", "propagated: on the target's own stream"),
            Key("k-noise", "rounding noise of this precision"),
            Key("k-limit", f"tolerance, {NUMERICS_RATIO:g} times the noise"),
            *_fault_key(blocks),
        ),
    )


def gain_figure(blocks: Sequence[Block], figure_id: str, row_id: Locate) -> Figure | None:
    """Gain score of every node against its tolerance; shows coherent errors that relative L2 cannot."""
    scores = [_finite(block.local.gain_score) if block.local else None for block in blocks]
    known = [abs(score) for score in scores if score is not None]
    if not known:
        return None
    low, high = _decade_range([*(score for score in known if score > 0), 0.1, NUMERICS_GAIN_SCORE * 2])
    canvas = Canvas(_WIDTH, _GAIN_HEIGHT)
    x, y = _columns(len(blocks)), logarithmic(low, high, _GAIN_HEIGHT - _BOTTOM, _TOP)
    _log_axis(canvas, low, high, y)
    limit = y(NUMERICS_GAIN_SCORE)
    canvas.line("limit", (_LEFT, limit), (_WIDTH - _RIGHT, limit))
    for i, score in enumerate(scores):
        if score is not None:
            canvas.line("stem", (x(i), _GAIN_HEIGHT - _BOTTOM), (x(i), y(abs(score))))
            canvas.dot("dot", (x(i), y(abs(score))), 2.5)
    _marks(canvas, blocks, x, lambda block: _finite(block.local.gain_score) if block.local else None, y)
    _node_axis(canvas, blocks, x, _GAIN_HEIGHT)
    _hover(canvas, blocks, x, row_id, _GAIN_HEIGHT)
    return Figure(
        id=figure_id,
        caption="Coherent error by depth: mean gain of a node's output over its standard error. "
        "A wrong scale stands out here long before it does in the distance above.",
        svg=canvas.markup(f"Gain score of {len(known)} nodes, at most {max(known):.3g}"),
        legend=(
            Key("k-local", "gain score, local"),
            Key("k-limit", f"tolerance, {NUMERICS_GAIN_SCORE:g}"),
            *_fault_key(blocks),
        ),
    )


def _fault_key(blocks: Sequence[Block]) -> Sequence[Key]:
    wrong = any(block.verdict == "fail" for block in blocks)
    return [Key("k-fail", "node beyond tolerance")] if wrong else []


def _errors(block: Block) -> tuple[float | None, float | None]:
    return (
        _finite(block.local.rel_l2) if block.local else None,
        _finite(block.propagated.rel_l2) if block.propagated else None,
    )


def _finite(value: Number) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None


def _noise(metrics: Metrics | None) -> float | None:
    """The noise arm's relative L2, from the target's and its ratio to it."""
    if metrics is None:
        return None
    error, ratio = _finite(metrics.rel_l2), _finite(metrics.ratio)
    return error / ratio if error is not None and ratio else None


def _decade_range(values: Sequence[float]) -> tuple[float, float]:
    low, high = 10.0 ** math.floor(math.log10(min(values))), 10.0 ** math.ceil(math.log10(max(values)))
    return low, high if high > low else low * 10


def _columns(count: int) -> Scale:
    width = (_WIDTH - _LEFT - _RIGHT) / max(count, 1)
    return lambda index: _LEFT + (index + 0.5) * width


def _point(x: float, value: float | None, y: Scale) -> Point | None:
    return None if value is None else (x, y(value) if value > 0 else y(0))


def _log_axis(canvas: Canvas, low: float, high: float, y: Scale) -> None:
    for exponent in decades(low, high):
        height = y(10.0**exponent)
        canvas.line("grid", (_LEFT, height), (_WIDTH - _RIGHT, height))
        label = f"1e{exponent}" if abs(exponent) > 2 else f"{10.0**exponent:g}"
        canvas.text("tick", (_LEFT - 8, height + 4), label, anchor="end")


def _noise_band(canvas: Canvas, noises: Sequence[float | None], x: Scale, y: Scale) -> None:
    floor = canvas.height - _BOTTOM
    tops = [(x(i), y(noise)) for i, noise in enumerate(noises) if noise is not None and noise > 0]
    if len(tops) < 2:
        return
    canvas.path("noise", [(tops[0][0], floor), *tops, (tops[-1][0], floor)], closed=True)
    limits = [None if not noise else (x(i), y(noise * NUMERICS_RATIO)) for i, noise in enumerate(noises)]
    canvas.path("limit", limits)


def _marks(
    canvas: Canvas, blocks: Sequence[Block], x: Scale, value: Callable[[Block], float | None], y: Scale
) -> None:
    for i, block in enumerate(blocks):
        measured = value(block)
        if block.verdict == "fail":
            height = y(abs(measured)) if measured is not None else _TOP
            canvas.line("drop", (x(i), height), (x(i), canvas.height - _BOTTOM))
            canvas.cross("mark fail", (x(i), height))
        elif block.verdict == "unverified":
            canvas.text("tick gap", (x(i), canvas.height - _BOTTOM - 4), "?", anchor="middle")


def _node_axis(canvas: Canvas, blocks: Sequence[Block], x: Scale, height: int) -> None:
    base = height - _BOTTOM
    canvas.line("axis", (_LEFT, base), (_WIDTH - _RIGHT, base))
    step = max(1, math.ceil(len(blocks) / 24))
    labels = [short_name(block.name) for block in blocks]
    # The ends first, then what has a name of its own, then every so many of the numbered.
    wanted = [0, len(blocks) - 1]
    wanted += [i for i, words in enumerate(labels) if not words.isdigit()]
    wanted += range(0, len(blocks), step)
    taken: list[tuple[float, float]] = []
    for i in dict.fromkeys(wanted):
        half = 4 + 3.5 * len(labels[i])
        if all(abs(x(i) - place) >= half + other for place, other in taken):
            canvas.text("tick", (x(i), base + 16), labels[i], anchor="middle")
            taken.append((x(i), half))
    canvas.text(
        "axis-title",
        ((_LEFT + _WIDTH - _RIGHT) / 2, height - 8),
        "node, in the order of a forward",
        anchor="middle",
    )


def short_name(name: str) -> str:
    """`model.layers.17` -> `17`, `model.embed_tokens` -> `embed`, `lm_head` -> `head`."""
    last = name[-100:].rsplit(".", 1)[-1]
    if last.isdigit():
        return last
    words = [word for word in re.split(r"[_\W]+", last) if word]
    return next((word for word in words if word not in ("lm", "model")), last)[:8]


def _hover(canvas: Canvas, blocks: Sequence[Block], x: Scale, row_id: Locate, height: int = _HEIGHT) -> None:
    """An invisible column over each node that names it and leads to its row; in a deep model the faulty."""
    width = x(1) - x(0)
    for i, block in enumerate(blocks):
        target = row_id(block.name)
        if not target or (len(blocks) > _MAX_HOVER and block.verdict == "pass"):
            continue
        local = number_text(block.local.rel_l2) if block.local else "not run"
        own = number_text(block.propagated.rel_l2) if block.propagated else "not run"
        told = f"{block.name}: {block.verdict}; local {local}, propagated {own}"
        canvas.link(target, "hover", (x(i) - width / 2, _TOP), width, height - _TOP - _BOTTOM, title=told)
