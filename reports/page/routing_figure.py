"""Routing by depth: the share of tokens that each router of the target sent to other experts."""

from __future__ import annotations

from collections.abc import Sequence

from day0.tasks.numerics.record_parts import Routing

from ..words import exact_text, percent_text
from .depth_axes import LEFT, RIGHT, WIDTH, short_name
from .parts import Figure, Key
from .svg import Canvas, linear, round_ticks

_HEIGHT, _TOP, _BOTTOM = 220, 26, 46
_WIDEST = 60.0
_LEAST_SHARE = 0.01
"""Upper end of the scale where next to nothing was flipped, so that one flip does not fill the figure."""
_MOST_TICKS = 24


def routing_figure(routers: Sequence[Routing], figure_id: str) -> Figure | None:
    """One bar a router, near-ties below and what they do not explain above; None where nothing was routed."""
    shares = [router.flips / router.tokens for router in routers if router.tokens > 0]
    if not shares:
        return None
    canvas = Canvas(WIDTH, _HEIGHT)
    base = float(_HEIGHT - _BOTTOM)
    ticks = round_ticks(max([*shares, _LEAST_SHARE]))
    y = linear(0, ticks[-1], base, _TOP)
    for tick in ticks:
        canvas.line("grid", (LEFT, y(tick)), (WIDTH - RIGHT, y(tick)))
        canvas.text("tick", (LEFT - 8, y(tick) + 4), percent_text(tick), anchor="end")
    pitch = min(_WIDEST, (WIDTH - LEFT - RIGHT) / len(routers))
    step = max(1, -(-len(routers) // _MOST_TICKS))
    for place, router in enumerate(routers):
        middle = LEFT + (place + 0.5) * pitch
        _bar(canvas, router, middle, pitch, (base, y(0) - y(1)))
        if place % step == 0:
            canvas.text("tick", (middle, base + 16), _label(router.name), anchor="middle")
    canvas.line("axis", (LEFT, base), (WIDTH - RIGHT, base))
    middle = LEFT + pitch * len(routers) / 2
    canvas.text("axis-title", (max(middle, LEFT + 70), base + 36), "router, in order", anchor="middle")
    return Figure(
        id=figure_id,
        caption="Tokens that the target sent to other experts than the reference, router by router, as a "
        "share of all tokens.",
        svg=canvas.markup(f"Flipped tokens of {len(routers)} routers, at most {percent_text(max(shares))}"),
        legend=_legend(routers),
    )


def _bar(canvas: Canvas, router: Routing, middle: float, pitch: float, scale: tuple[float, float]) -> None:
    base, unit = scale
    if router.tokens <= 0:
        canvas.text("tick gap", (middle, base - 5), "?", anchor="middle")
        return
    left, wide = middle - pitch * 0.36, pitch * 0.72
    near, strange = exact_text(router.near_tie), exact_text(router.unexplained)
    told = f"{router.name}: {near} near-ties, {strange} unexplained, of {exact_text(router.tokens)} tokens"
    top = base
    for css, count in (("part c2", router.near_tie), ("part unexplained", router.unexplained)):
        height = max(0.0, count / router.tokens * unit)
        if height > 0:
            top -= height
            canvas.rect(css, (left, top), wide, height, title=told)
    if router.unexplained > 0:
        canvas.cross("mark fail", (middle, top - 9), min(4.0, pitch * 0.3))


def _legend(routers: Sequence[Routing]) -> Sequence[Key]:
    keys = [Key("k-c2", "near-tie: the reference's margin lies within the noise of its scores")]
    if any(router.unexplained > 0 for router in routers):
        keys.append(Key("k-unexplained", "unexplained: the margin exceeds the noise (cross above)"))
    if any(router.tokens <= 0 for router in routers):
        keys.append(Key("k-gap", "not counted"))
    return keys


def _label(name: str) -> str:
    """The number of the layer, where the name has one."""
    numbers = [part for part in name[-120:].split(".") if part.isdecimal()]
    return numbers[-1][-6:] if numbers else short_name(name)
