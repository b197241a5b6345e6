"""Lines for a terminal: columns that line up, prose that is broken between words."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import TextIO

PIPED = 120  # columns where the reader is no terminal and COLUMNS says nothing
_UNKNOWN = 80
_NARROWEST = 40
_QUANTITY = re.compile(r"(?<=\d) (?=(?:[kMGTP]?B|ms|s|GB/s)\b)")  # a number stays with its unit
_GLUE = "\0"  # for the blank between them while lines are broken: no text holds it


def columns_of(stream: TextIO) -> int:
    """The width to write for: COLUMNS, else that of the terminal, else a fixed one."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked) > 0:
        return max(_NARROWEST, int(asked))
    if not stream.isatty():
        return PIPED
    try:
        return max(_NARROWEST, os.get_terminal_size(stream.fileno()).columns or _UNKNOWN)
    except (OSError, ValueError):  # the terminal does not tell
        return _UNKNOWN


def aligned(rows: Sequence[Sequence[str]], numeric: Sequence[int] = ()) -> Iterator[str]:
    """Columns of equal width; those named in `numeric` set to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    for row in rows:
        cells = [
            cell.rjust(width) if column in numeric else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def wrapped(text: str, width: int, first: str = "", hang: str = "", most: int | None = None) -> Iterator[str]:
    """The text broken between words; a word that is longer than a line stays whole.

    Args:
        text: one paragraph.
        width: columns.
        first: stands before the first line.
        hang: stands before the others.
        most: lines; what is cut off is told by an ellipsis.
    """
    room = textwrap.TextWrapper(
        width=max(width, len(hang) + 20),
        initial_indent=first,
        subsequent_indent=hang,
        break_long_words=False,
        break_on_hyphens=False,
        max_lines=most,
        placeholder=" ...",
    )
    joined = room.wrap(_QUANTITY.sub(_GLUE, text))
    yield from (line.replace(_GLUE, " ") for line in joined or [first.rstrip()])


def with_last_wrapped(rows: Sequence[Sequence[str]], numeric: Sequence[int], width: int) -> Iterator[str]:
    """Columns whose last one, of prose, is broken between words below itself."""
    heads = list(aligned([[*row[:-1], ""] for row in rows], numeric))
    start = max(map(len, heads), default=0) + 2
    for head, row in zip(heads, rows, strict=True):
        if row[-1]:
            yield from wrapped(row[-1], width, head.ljust(start), " " * start)
        else:
            yield head
