"""Tables of two columns: a fact's name and its value, each value with where it came from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..words import listed
from .ledger import Ledger
from .parts import Cell, Column, Row, Table

_MOST_LISTED = 6


class FactRows:
    """Gathers rows; what is empty, zero or unknown is left out.

    Args:
        ledger: of the record that the pointers lead into.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._rows: list[Row] = []

    def fact(self, name: str, pointer: str, value: Any, form: str = "") -> None:
        """The fact at that place; `value` is what stands there and decides how it looks."""
        if value in (None, "", 0, 0.0) or (not isinstance(value, str | int | float) and not value):
            return
        if isinstance(value, bool):
            self.told(name, "yes" if value else "no", pointer)
        elif isinstance(value, str):
            self._rows.append(Row([Cell(name), self._ledger.cell(pointer, "text", code=form == "code")]))
        elif isinstance(value, int | float):
            whole = form or ("exact" if isinstance(value, int) else "text")
            self._rows.append(Row([Cell(name), self._ledger.cell(pointer, whole, numeric=False, whole=True)]))
        else:
            self.told(name, listed([str(item) for item in value], _MOST_LISTED), pointer)

    def told(self, name: str, text: str, *pointers: str) -> None:
        """A value put into words, with the sources of the facts that it was made of."""
        if text:
            self._rows.append(Row([Cell(name), self._ledger.told(text, *pointers)]))

    def table(self, key: str, caption: str, *, folded: bool = True) -> Sequence[Table]:
        """The table; none where there is nothing to tell."""
        columns = [Column("Fact"), Column("Value")]
        return (
            [Table(id=key, caption=caption, columns=columns, rows=self._rows, folded=folded)]
            if self._rows
            else []
        )
