"""What people know of rows beside what was measured: an issue, and whether a fault is accepted.

Notes stand in files of their own, since a probe writes rows anew: `STACK-DEVICE.notes.json` here, and
`registries/STACK@DEVICE.notes.json` in the run store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import resources

from pydantic import TypeAdapter, ValidationError

from ..base.run_store import RunStore
from ..base.values import Value
from .registry import Registry
from .row import RegistryRow


class Note(Value):
    """One note, for all rows that it fits and that are not native.

    Attributes:
        op: full name, `aten.mm.default`.
        dtypes: of the row; empty: all.
        variant: of the row; None: all.
        issue: address of an issue that tells of the fault.
        waiver: why the fault is accepted, or empty.
        until: last day on which it is (`2027-01-31`), or empty.
    """

    op: str
    dtypes: Sequence[str] = ()
    variant: str | None = None
    issue: str = ""
    waiver: str = ""
    until: str = ""

    def fits(self, row: RegistryRow) -> bool:
        """Whether it speaks of this row."""
        return (
            self.op == row.op
            and (not self.dtypes or list(self.dtypes) == list(row.dtypes))
            and self.variant in (None, row.variant)
            and (row.status != "native" or bool(row.constraints))
        )


_NOTES = TypeAdapter(list[Note])


def notes_path(name: str) -> str:
    """Where the run store keeps a person's notes on `STACK@DEVICE`."""
    return f"registries/{name}.notes.json"


def load_notes(store: RunStore, name: str) -> tuple[list[Note], list[str]]:
    """Notes shipped with Day0, then those of the run store; and what cannot be read, a sentence each."""
    file = resources.files(__package__).joinpath(f"{name.replace('@', '-')}.notes.json")
    texts = [file.read_bytes()] if file.is_file() else []
    path = notes_path(name)
    texts += [store.read(path)] if store.exists(path) else []
    notes: list[Note] = []
    unread: list[str] = []
    for text in texts:
        try:
            notes += _NOTES.validate_json(text)
        except ValidationError as error:
            reason = error.errors(include_url=False, include_input=False)[0]["msg"]
            unread.append(
                f"the notes on the registry of {name} cannot be read: {reason} (write a list such as "
                '[{"op": "aten.mm.default", "issue": "https://..."}])'
            )
    return notes, unread


def noted(registry: Registry, notes: Sequence[Note]) -> Registry:
    """The registry with notes laid over its measured rows; of two that fit one row the later one stays."""
    rows = {place: _noted(row, notes) for place, row in registry.rows.items()} if notes else registry.rows
    return replace(registry, rows=rows)


def without_notes(registry: Registry) -> Registry:
    """The rows as they were measured, which is what a file of rows keeps."""
    bare = {"issue": "", "waiver": "", "until": ""}
    return replace(
        registry, rows={place: row.model_copy(update=bare) for place, row in registry.rows.items()}
    )


def _noted(row: RegistryRow, notes: Sequence[Note]) -> RegistryRow:
    fitting = [note for note in notes if note.fits(row)]
    if not fitting:
        return row
    last = fitting[-1]
    return row.model_copy(update={"issue": last.issue, "waiver": last.waiver, "until": last.until})
