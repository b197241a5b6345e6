"""Rows of tables as HTML; written here and not in a template because there are thousands of cells."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

from .parts import Cell, Row, Table
from .text import CELL_LIMIT, clean


def rows_html(table: Table, scope: str) -> Markup:
    """The rows of a table body; `scope` is the id of the block that lists the sources.

    Every text and every attribute goes through `clean` and `escape`.
    """
    return Markup("\n").join(_row(row, scope) for row in table.rows)


def notes_html(notes: Sequence[str], scope: str) -> Markup:
    """Small letters that lead to where a number came from; empty without notes."""
    if not notes:
        return Markup("")
    links = [f'<a href="#{escape(scope)}--source-{escape(note)}">{escape(note)}</a>' for note in notes]
    return Markup(f"<sup>{''.join(links)}</sup>")


def cell_html(cell: Cell, scope: str) -> Markup:
    """What stands in a cell: symbol, text, sources."""
    text = str(escape(clean(cell.text, CELL_LIMIT)))
    if cell.code and text:
        text = f"<code>{text}</code>"
    if cell.href:
        text = f'<a href="#{escape(cell.href)}">{text}</a>'
    if cell.status:
        word = escape(cell.status)
        symbol = f'<svg class="i v-{word}" aria-hidden="true"><use href="#i-{word}"/></svg>'
        text = f'{symbol}<span class="vh">{word} </span>{text}'
    below = f'<span class="below">{escape(clean(cell.below, CELL_LIMIT))}</span>' if cell.below else ""
    return Markup(f"{text}{notes_html(cell.notes, scope)}{below}")


def _row(row: Row, scope: str) -> Markup:
    attributes = f' id="{escape(row.id)}"' if row.id else ""
    if row.status and row.status != "pass":
        attributes += f' class="r-{escape(row.status)}"'
    first, *rest = row.cells
    cells = [f'<th scope="row"{_looks(first)}>{cell_html(first, scope)}</th>']
    cells += [f"<td{_looks(cell)}>{cell_html(cell, scope)}</td>" for cell in rest]
    return Markup(f"<tr{attributes}>{''.join(cells)}</tr>")


def _looks(cell: Cell) -> str:
    css = ' class="n"' if cell.numeric else ' class="w"' if cell.whole else ""
    return f'{css} title="{escape(clean(cell.title, CELL_LIMIT))}"' if cell.title else css
