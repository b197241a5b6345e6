"""Every number of a record on its way to the page, with where it came from."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from day0.tasks.record import StageRecord

from ..pointers import resolve, source_of
from ..strict_json import plain
from ..words import bytes_text, count_text, exact_text, gap_text, number_text, percent_text, seconds_text
from .parts import Cell

UNSOURCED = "source not recorded"
_MEASURED = "measured in this run; differs from run to run"

FORMATS: Mapping[str, Callable[[Any], str]] = {
    "exact": exact_text,
    "short": count_text,
    "bytes": bytes_text,
    "number": number_text,
    "percent": percent_text,
    "gap": gap_text,
    "seconds": seconds_text,
    "text": str,
}


class Ledger:
    """Hands out a record's values as cells and keeps a list of their sources.

    Args:
        record: the record whose facts the pointers lead into.
    """

    def __init__(self, record: StageRecord) -> None:
        self._sources = record.sources
        self._facts = plain(record.facts)
        self._letters: dict[str, str] = {}

    def cell(self, pointer: str, form: str, **looks: Any) -> Cell:
        """The fact at that place; without a source it is shown as such.

        Raises:
            KeyError: there is no such fact.
        """
        value = resolve(self._facts, pointer)
        return self._make(value, form, source_of(self._sources, pointer) or UNSOURCED, looks)

    def derived(self, value: Any, form: str, formula: str, *pointers: str, **looks: Any) -> Cell:
        """A computed value: by which formula, and the sources it inherits from the facts it was made of."""
        origins = dict.fromkeys(source_of(self._sources, pointer) or UNSOURCED for pointer in pointers)
        source = f"computed: {formula}" + (f", from {'; '.join(origins)}" if origins else "")
        return self._make(value, form, source, looks)

    def told(self, text: str, *pointers: str, **looks: Any) -> Cell:
        """Facts put into words, with the sources of these facts."""
        origins = dict.fromkeys(source_of(self._sources, pointer) or UNSOURCED for pointer in pointers)
        return self._make(text, "text", "; ".join(origins), looks)

    def measured(self, value: Any, form: str, **looks: Any) -> Cell:
        """An observation of this run."""
        return self._make(value, form, _MEASURED, looks)

    @property
    def sources(self) -> Sequence[tuple[str, str]]:
        """Letter and source of everything handed out, in order of first use."""
        return [(letter, source) for source, letter in self._letters.items()]

    def _make(self, value: Any, form: str, source: str, looks: Mapping[str, Any]) -> Cell:
        letter = self._letters.setdefault(source, _letter(len(self._letters)))
        text = FORMATS[form](value)
        exact = form in ("short", "bytes") and isinstance(value, int)
        title = f"{exact_text(value)} {'bytes' if form == 'bytes' else ''}".strip() if exact else ""
        make = partial(Cell, text, numeric=form != "text", title=title, notes=(letter,))
        return make(**looks)


def _letter(index: int) -> str:
    letters = string.ascii_lowercase
    return letters[index] if index < 26 else _letter(index // 26 - 1) + letters[index % 26]
