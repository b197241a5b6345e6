"""The few things a page is made of; the template knows how each looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from markupsafe import Markup


@dataclass(frozen=True)
class Cell:
    """One cell of a table or one value of a list of figures.

    Attributes:
        text: what stands there.
        numeric: set to the right, in figures of equal width.
        code: set as code.
        status: verdict word whose symbol and colour stand before the text; empty for none.
        href: where it leads; empty for none.
        title: shown on hover, e.g. the exact number.
        notes: letters of the sources it came from.
        whole: never broken over lines.
        below: a second line, set smaller.
    """

    text: str
    numeric: bool = False
    code: bool = False
    status: str = ""
    href: str = ""
    title: str = ""
    notes: Sequence[str] = ()
    whole: bool = False
    below: str = ""


@dataclass(frozen=True)
class Column:
    """One column: its heading, whether it holds numbers, a sentence of explanation, its sources."""

    title: str
    numeric: bool = False
    help: str = ""
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Row:
    """One row; its first cell is its heading. `status` colours its edge."""

    cells: Sequence[Cell]
    id: str = ""
    status: str = ""


@dataclass(frozen=True)
class Table:
    """A table with its caption.

    Attributes:
        id: for deep links.
        caption: what it shows, in words.
        columns: headings.
        rows: those shown.
        total: number of rows there are.
        rest: where those that are not shown stand.
        folded: whether it starts closed.
    """

    id: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    total: int = 0
    rest: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Key:
    """One entry of a figure's legend: a swatch's class and what it stands for."""

    css: str
    text: str


@dataclass(frozen=True)
class Figure:
    """A drawing of our own with its caption, its legend and a sentence that says what to see in it."""

    id: str
    caption: str
    svg: Markup
    legend: Sequence[Key] = ()
    reading: str = ""


@dataclass(frozen=True)
class Stat:
    """One number that stands out: what it is, its value, a remark."""

    label: str
    cell: Cell
    remark: str = ""


@dataclass(frozen=True)
class Quote:
    """What a model said: who, and the text."""

    who: str
    text: str


@dataclass(frozen=True)
class Passage:
    """A longer text to copy, folded away.

    Attributes:
        id: for deep links.
        caption: what it is.
        text: a script or a letter.
    """

    id: str
    caption: str
    text: str


@dataclass(frozen=True)
class Notice:
    """A sentence that weighs on all that stands below it: its verdict word and the text."""

    look: str
    text: str


@dataclass(frozen=True)
class Script:
    """A program to copy.

    Attributes:
        id: for deep links.
        caption: what it shows.
        text: its lines, as many as the page shows.
        cut: what the page leaves out; empty where it shows all.
        command: takes the whole of it out of the report's JSON and runs it.
    """

    id: str
    caption: str
    text: str
    cut: str
    command: str


@dataclass(frozen=True)
class Step:
    """One step of a trail: what sort of thing, its name, the id it leads to (empty for none)."""

    word: str
    name: str
    href: str = ""


@dataclass(frozen=True)
class Trail:
    """How a search went from the whole to the smallest part at fault.

    Attributes:
        id: for deep links.
        title: what was looked for.
        steps: from the whole to the part.
        found: numbers that decided it.
        detail: how the search went; empty where nothing is to be told.
        script: that shows it again; None without one.
    """

    id: str
    title: str
    steps: Sequence[Step]
    found: Sequence[Stat]
    detail: str = ""
    script: Script | None = None


@dataclass(frozen=True)
class Group:
    """A part of a block under a heading of its own.

    Attributes:
        id: for deep links.
        title: of the part.
        lead: one sentence.
        look: verdict word whose symbol stands before the sentence; empty for none.
        stats: numbers that stand out.
        figures: drawings.
        tables: tables.
    """

    id: str
    title: str
    lead: str
    look: str = ""
    stats: Sequence[Stat] = ()
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()


@dataclass(frozen=True)
class Block:
    """One target's part of a section (or the whole section where targets play no role).

    Attributes:
        id: for deep links.
        title: the target; empty for a section of one block.
        verdict: of the record.
        lead: one sentence.
        notices: what has to be known before anything else in it is read.
        stats: numbers that stand out.
        quotes: what reference and target said.
        trail: how the first fault was found.
        figures: drawings.
        tables: tables.
        groups: parts under headings of their own.
        passages: longer texts to copy.
        log: last lines of the worker, where they help.
        sources: letter -> where values came from.
        reused: whether the record was in the store already.
    """

    id: str
    title: str
    verdict: str
    lead: str
    notices: Sequence[Notice] = ()
    stats: Sequence[Stat] = ()
    quotes: Sequence[Quote] = ()
    trail: Trail | None = None
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    groups: Sequence[Group] = ()
    passages: Sequence[Passage] = ()
    log: Sequence[str] = ()
    sources: Sequence[tuple[str, str]] = ()
    reused: bool = False


@dataclass(frozen=True)
class Section:
    """One stage: what it is for, and a block for each target."""

    id: str
    title: str
    about: str
    blocks: Sequence[Block] = field(default=())


def settle(table: Table) -> Table:
    """The table with the sources that all cells of a column share moved to the column's heading."""
    columns, shared = [], set()
    for position, column in enumerate(table.columns):
        notes = {tuple(row.cells[position].notes) for row in table.rows if row.cells[position].notes}
        common = next(iter(notes)) if len(notes) == 1 else ()
        columns.append(replace(column, notes=common))
        if common:
            shared.add(position)
    rows = (
        [replace(row, cells=_without_notes(row.cells, shared)) for row in table.rows]
        if shared
        else table.rows
    )
    return replace(table, columns=columns, rows=rows, total=table.total or len(rows))


def _without_notes(cells: Sequence[Cell], positions: set[int]) -> Sequence[Cell]:
    return [
        replace(cell, notes=()) if cell.notes and position in positions else cell
        for position, cell in enumerate(cells)
    ]
