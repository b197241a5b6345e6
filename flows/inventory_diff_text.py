"""What is structurally new, in lines: one sentence first, then the tensors, then the facts by topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from day0.reports.words import bytes_text, listed, plural
from day0.tasks.inventory.content_changes import CONTENT
from day0.tasks.inventory.index_sets import layers_text
from day0.tasks.inventory.structural_change import Changed, LayerChange, StructuralDiff, TensorRole

from .text_layout import PIPED, aligned, with_last_wrapped, wrapped

_MOST_ROLES = 20
_MOST_OTHERS = 10
_MOST_FACTS = 12
_CELL = 60
_DIGITS = 12  # of a hash
_PROSE = 30  # columns that a last cell of words needs beside the others; with less it goes below them
_DEEPEST = 4


def diff_text(diff: StructuralDiff, width: int = PIPED) -> Iterator[str]:
    """The headline, then everything in order of weight; long lists are bounded and say so.

    Args:
        diff: what to tell.
        width: columns; a name that is longer stays whole.
    """
    yield from wrapped(diff.headline, width)
    yield ""
    yield f"- {diff.before}"
    yield f"+ {diff.after}"
    for renamed in diff.renamed:
        names = f"{renamed.before or '(none)'} -> {renamed.after or '(none)'}"
        said = f"the same under another prefix: {names}, {plural(renamed.patterns, 'pattern')}"
        yield from wrapped(said, width, "  ", "    ")
    yield from _roles("new tensor role", "+", diff.new, width)
    yield from _roles("removed tensor role", "-", diff.removed, width)
    yield from _changes(diff, width)


def _changes(diff: StructuralDiff, width: int) -> Iterator[str]:
    """What is stored otherwise, then the facts by topic."""
    dtypes = [
        (
            change.role,
            f"{change.before} -> {change.after}",
            _where(change.layers, change.patterns),
        )
        for change in diff.dtypes
    ]
    yield from _section("stored in another dtype", dtypes, _MOST_ROLES, width)
    yield from _section(
        "of another shape",
        [
            (change.pattern, f"{list(change.before)} -> {list(change.after)}", change.layers)
            for change in diff.shapes
        ],
        _MOST_OTHERS,
        width,
    )
    yield from _section("in other places", [_place(change) for change in diff.placed], _MOST_OTHERS, width)
    topics: dict[str, list[Changed]] = {}
    for change in diff.changed:
        topics.setdefault(change.topic, []).append(change)
    for topic, changes in topics.items():
        rows = [(change.name, _from_to(change), "") for change in changes]
        yield from _section(topic, rows, _MOST_FACTS, width, diff.more_config if topic == "config" else 0)


def _roles(title: str, mark: str, roles: Sequence[TensorRole], width: int) -> Iterator[str]:
    weights = [role for role in roles if not role.side]
    sides = [role for role in roles if role.side]
    rows = [
        (
            f"{mark} {role.pattern}",
            role.role,
            " ".join(["+".join(role.dtypes), *(str(list(shape)) for shape in role.shapes[:2])]),
            layers_text(role.layers) if role.layers else "",
            ", ".join(role.kinds),
            bytes_text(role.bytes),
        )
        for role in (*weights, *sides)
    ]
    if rows:
        beside = f" and {plural(len(sides), 'side tensor')} of them" if sides and weights else ""
        yield ""
        yield f"{plural(len(weights) or len(sides), title)}{beside}"
        yield from _fitted(rows[:_MOST_ROLES], width)
        yield from _more(len(rows) - _MOST_ROLES)


def _section(
    title: str, rows: Sequence[tuple[str, str, str]], most: int, width: int, beyond: int = 0
) -> Iterator[str]:
    if rows:
        yield ""
        yield title
        yield from _fitted(rows[:most], width)
        yield from _more(max(0, len(rows) - most) + beyond)


def _fitted(rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Rows in columns where these fit, with the last cell broken if need be; else each as a paragraph."""
    if max(map(len, aligned(rows)), default=0) + 2 <= width:
        lines = aligned(rows)
    elif max(map(len, aligned([row[:-1] for row in rows]))) + _PROSE <= width:
        lines = with_last_wrapped(rows, (), width - 2)
    else:
        lines = (line for row in rows for line in _paragraph(row, width - 2))
    yield from (f"  {line}" for line in lines)


def _paragraph(row: Sequence[str], width: int) -> Iterator[str]:
    yield from wrapped(", ".join(cell for cell in row if cell), width, "", "    ")


def _more(number: int) -> Iterator[str]:
    if number > 0:
        yield f"  ... and {number:,} more with --json"


def _where(layers: str, patterns: Sequence[str]) -> str:
    return f"{layers_text(layers) + ', ' if layers else ''}{listed(list(patterns), 2)}"


def _place(change: LayerChange) -> tuple[str, str, str]:
    return (
        change.what,
        f"{change.before or 'outside'} -> {change.after or 'outside'}",
        listed(list(change.patterns), 2),
    )


def _from_to(change: Changed) -> str:
    cell = _hash if change.name.startswith(CONTENT) else _cell
    return f"{cell(change.before)} -> {cell(change.after)}"


def _hash(content: str | None) -> str:
    """As much of a hash as tells two apart; the whole of it is in the JSON."""
    kind, colon, value = (content or "none").partition(":")
    return f"{kind} {value[:_DIGITS]}" if colon else kind


def _cell(value: Any) -> str:
    text = _text(value)
    if len(text) <= _CELL:
        return text
    return f"a list of {len(value)}" if isinstance(value, list | tuple) else f"{text[:_CELL]}..."


def _text(value: Any, depth: int = _DEEPEST) -> str:
    """A value as a person writes it; what is empty is told as none."""
    named = {None: "none", True: "yes", False: "no"}
    if value is None or isinstance(value, bool):
        return named[value]
    if isinstance(value, int):
        return f"{value:,}"
    if not depth:
        return "..."
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(held, depth - 1)}" for key, held in value.items()) or "none"
    if isinstance(value, list | tuple):
        nested = any(isinstance(held, Mapping | list | tuple) for held in value)
        told = [_text(held, depth - 1) for held in value]
        return ("; " if nested else ", ").join(told) or "none"
    return str(value) or "none"
