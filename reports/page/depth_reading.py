"""What to see in the figure of error by depth, in a few sentences."""

from __future__ import annotations

from collections.abc import Sequence

from day0.tasks.numerics.record import Block
from day0.tasks.thresholds import NUMERICS_RATIO

from ..words import exact_text, listed, number_text, plural
from .depth_axes import finite, spans


def reading(blocks: Sequence[Block], first_fault: str = "") -> str:
    """Where the solid line leaves the band, what the dotted one adds to that, and what is missing."""
    faults = [block for block in blocks if block.verdict == "fail"]
    faults.sort(key=lambda block: block.name != first_fault)
    parts = [_faulty(faults) if faults else _clean(blocks), _inherited(blocks, faulty=bool(faults))]
    if not faults:
        parts += [_onward(blocks[start:end]) for start, end in spans(blocks)]
    missing = [block.name for block in blocks if block.verdict == "unverified"]
    if missing:
        parts.append(f"Not compared, marked with a question mark: {listed(missing, 2)}.")
    return " ".join(part for part in parts if part)


def _faulty(faults: Sequence[Block]) -> str:
    first, *rest = faults
    ratio = finite(first.local.ratio) if first.local else None
    if ratio is not None and ratio > NUMERICS_RATIO:
        off = f"{number_text(ratio)} times the rounding"
        told = f"{first.name} is wrong by itself, {off}: there the solid line leaves the band."
    elif ratio is not None:
        told = f"{first.name} is wrong by itself although its distance is within rounding: {first.reason}."
    else:
        told = f"{first.name} is wrong by itself and has no distance to draw: {first.reason or 'no number'}."
    if len(rest) == 1:
        return f"{told} So is {rest[0].name}."
    return f"{told} So are {plural(len(rest), 'more node')}: {_names(rest)}." if rest else told


def _clean(blocks: Sequence[Block]) -> str:
    judged = [
        (ratio, block.name)
        for block in blocks
        if block.verdict != "unverified" and block.local
        if (ratio := finite(block.local.ratio)) is not None
    ]
    if not judged:
        return ""
    most, where = max(judged)
    if most == 0:
        return f"All {plural(len(judged), 'node')} are equal to the reference to the last bit."
    return (
        f"The solid line stays below the dashed one at all {plural(len(judged), 'node')}: at most "
        f"{number_text(most)} times the rounding, at {where}."
    )


def _inherited(blocks: Sequence[Block], *, faulty: bool) -> str:
    off = [block for block in blocks if block.verdict == "inherited"]
    if not off:
        return ""
    verb = "is" if len(off) == 1 else "are"
    told = f"{plural(len(off), 'node')}, marked by diamonds, {verb} off on the dotted line only"
    if faulty:
        return f"{told}: right on the reference's input, they pass on what they received."
    return f"{told}, though no node is wrong by itself: an error too small for one of them adds up."


def _onward(blocks: Sequence[Block]) -> str:
    ends = [block for block in blocks if block.propagated and finite(block.propagated.rel_l2) is not None]
    if not ends or not ends[-1].propagated:
        return ""
    last, ratio = ends[-1], finite(ends[-1].propagated.ratio)
    told = f"On its own stream the target ends {number_text(ends[-1].propagated.rel_l2)} away at {last.name}"
    if ratio is None or not ratio:
        return f"{told}."
    return f"{told}, {number_text(ratio)} times what rounding alone adds up to."


def _names(blocks: Sequence[Block]) -> str:
    shown = [block.name for block in blocks[:3]]
    more = f" and {exact_text(len(blocks) - 3)} more" if len(blocks) > 3 else ""
    return (listed(shown) if not more else ", ".join(shown)) + more
