"""Registries as reviewable JSON: as shipped here, and what a person's own probes add in the run store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from ..base.errors import InputError
from ..base.run_store import RunStore
from ..base.values import Fingerprint, canonical_json
from .notes import load_notes, noted, without_notes
from .plugins import plugin_files
from .registry import Registry
from .row import RegistryRow
from .row_files import rows_text, salvage

FORMAT = 2
"""2: rows know their attributes (`variant`), constraints and evidence."""

_OLDER = 1

_DAMAGED = ".damaged"


def shipped_registry(name: str) -> Registry:
    """What Day0 itself and installed packages bring for `STACK@DEVICE`; empty where none brings anything.

    What cannot be read of it is in `unread`.
    """
    shipped = f"{name.replace('@', '-')}.json"
    file = resources.files(__package__).joinpath(shipped)
    registry = parse_registry(name, file.read_text()) if file.is_file() else Registry(name)
    for brought in plugin_files(shipped):
        where = f"the registry file {shipped} of the package {brought.package}"
        found = read_registry(name, brought.data, where) if brought.data else Registry(name)
        registry = registry.overlaid(found).with_unread(brought.trouble)
    return registry


def stored_registry(store: RunStore, name: str) -> Registry:
    """What probes have added in the run store; empty where there were none.

    What cannot be read of it is in `unread`.
    """
    path = store_path(name)
    if not store.exists(path):
        return Registry(name)
    return read_registry(name, store.read(path), f"the registry file {path} of the run store")


def load_registry(store: RunStore, name: str) -> Registry:
    """Shipped rows with those of the run store laid over them, and notes over both.

    What cannot be read of any of these is in `unread`; the rest stands.
    """
    rows = shipped_registry(name).overlaid(stored_registry(store, name))
    notes, unread = load_notes(store, name)
    return noted(rows, notes).with_unread(*unread)


def add_to_store(store: RunStore, added: Registry) -> None:
    """Lays rows over those of the run store; a reader sees the old file or the new one, never a part.

    A file that cannot be read whole is kept beside it, with `.damaged` at the end of its name.
    """
    path = store_path(added.name)
    there = stored_registry(store, added.name)
    if there.unread:
        store.write(path + _DAMAGED, store.read(path))
    store.write(path, dump_registry(there.overlaid(without_notes(added))).encode())


def store_path(name: str) -> str:
    """Where the run store keeps a registry."""
    return f"registries/{name}.json"


def dump_registry(registry: Registry) -> str:
    """The registry as text: sorted, one row a line, defaults left out, so that a change is a few lines."""
    rows = [table[key] for table in (registry.rows, registry.declared) for key in sorted(table)]
    lines = [canonical_json(_plain(row)) for row in rows]
    used = {row.fingerprint for row in rows}
    prints = {key: value for key, value in registry.fingerprints.items() if key in used}
    return rows_text("registry", registry.name, FORMAT, lines, prints)


def parse_registry(name: str, text: str) -> Registry:
    """Inverse of `dump_registry`; rows of the older format count as inherited.

    Raises:
        InputError: E138, the text is no registry of that name and format, or not all of it is.
    """
    registry = read_registry(name, text.encode(), f"the registry file of {name}")
    if registry.unread:
        raise InputError(registry.unread[0], code="E138", remedy="Delete it and run `day0 probe` again.")
    return registry


def read_registry(name: str, data: bytes, where: str) -> Registry:
    """What can be read of a registry; what cannot is in `unread`.

    Args:
        name: that it is to have.
        data: of the file.
        where: the file in words.
    """
    found = salvage(data, where, "registry", name, (FORMAT, _OLDER), RegistryRow)
    rows, fingerprints = found.rows, found.fingerprints
    if found.format == _OLDER:
        rows, fingerprints = _aged(rows, fingerprints)
    return Registry(name).merged(rows, fingerprints).with_unread(*found.unread)


def _plain(row: RegistryRow) -> dict[str, Any]:
    return row.model_dump(mode="json", exclude_defaults=True)


def _aged(
    rows: Sequence[RegistryRow], fingerprints: Mapping[str, Fingerprint]
) -> tuple[list[RegistryRow], dict[str, Fingerprint]]:
    """Rows of the format without attributes under fingerprints of their own, related to the true ones.

    Which attributes they were measured with is not known, so that they are tried again.
    """
    renamed = {
        old: value.model_copy(update={"exact": {**value.exact, "registry format": str(_OLDER)}})
        for old, value in fingerprints.items()
    }
    moved = [
        row.model_copy(update={"fingerprint": renamed[row.fingerprint].digest})
        for row in rows
        if row.fingerprint in renamed
    ]
    return moved, {value.digest: value for value in renamed.values()}
