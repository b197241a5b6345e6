"""Registries as reviewable JSON: as shipped here, and what a person's own probes add in the run store."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ..base.errors import InputError
from ..base.run_store import RunStore
from ..base.values import Fingerprint, canonical_json
from .notes import load_notes, noted, without_notes
from .plugins import plugin_texts
from .registry import Registry
from .row import RegistryRow

FORMAT = 2
"""2: rows know their attributes (`variant`), constraints and evidence."""

_OLDER = 1

_ROWS = TypeAdapter(list[RegistryRow])
_FINGERPRINTS = TypeAdapter(dict[str, Fingerprint])


def shipped_registry(name: str) -> Registry:
    """What Day0 itself and installed packages bring for `STACK@DEVICE`; empty where none brings anything.

    Raises:
        InputError: E138, a file is damaged; E172, an installed package's cannot be read.
    """
    shipped = f"{name.replace('@', '-')}.json"
    file = resources.files(__package__).joinpath(shipped)
    registry = parse_registry(name, file.read_text()) if file.is_file() else Registry(name)
    for _, text in plugin_texts(shipped):
        registry = registry.overlaid(parse_registry(name, text))
    return registry


def stored_registry(store: RunStore, name: str) -> Registry:
    """What probes have added in the run store; empty where there were none.

    Raises:
        InputError: E138, the file is damaged.
    """
    path = store_path(name)
    return parse_registry(name, store.read(path).decode()) if store.exists(path) else Registry(name)


def load_registry(store: RunStore, name: str) -> Registry:
    """Shipped rows with those of the run store laid over them, and notes over both.

    Raises:
        InputError: E138, a file is damaged.
    """
    rows = shipped_registry(name).overlaid(stored_registry(store, name))
    return noted(rows, load_notes(store, name))


def add_to_store(store: RunStore, added: Registry) -> None:
    """Lays rows over those of the run store; a reader sees the old file or the new one, never a part."""
    merged = stored_registry(store, added.name).overlaid(without_notes(added))
    store.write(store_path(added.name), dump_registry(merged).encode())


def store_path(name: str) -> str:
    """Where the run store keeps a registry."""
    return f"registries/{name}.json"


def dump_registry(registry: Registry) -> str:
    """The registry as text: sorted, one row a line, defaults left out, so that a change is a few lines."""
    rows = [table[key] for table in (registry.rows, registry.declared) for key in sorted(table)]
    lines = [canonical_json(_plain(row)) for row in rows]
    used = {row.fingerprint for row in rows}
    prints = {key: value for key, value in sorted(registry.fingerprints.items()) if key in used}
    head = {
        "registry": registry.name,
        "format": FORMAT,
        "fingerprints": {key: value.model_dump(mode="json") for key, value in prints.items()},
    }
    text = json.dumps(head, indent=1, sort_keys=True).removesuffix("\n}")
    return text + ',\n "rows": [\n  ' + ",\n  ".join(lines) + "\n ]\n}\n"


def parse_registry(name: str, text: str) -> Registry:
    """Inverse of `dump_registry`; rows of the older format count as inherited.

    Raises:
        InputError: E138, the text is no registry of that name and format.
    """
    try:
        content: dict[str, Any] = json.loads(text)
        if content["registry"] != name or content["format"] not in (FORMAT, _OLDER):
            raise ValueError(f"it is registry {content['registry']!r} in format {content['format']!r}")
        rows = _ROWS.validate_python(content["rows"])
        fingerprints = _FINGERPRINTS.validate_python(content["fingerprints"])
        if content["format"] == _OLDER:
            rows, fingerprints = _aged(rows, fingerprints)
    except (ValueError, KeyError, TypeError, RecursionError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"the registry file of {name} cannot be read: {reason}",
            code="E138",
            remedy="Delete it and run `day0 probe` again.",
        ) from error
    return Registry(name).merged(rows, fingerprints)


def _plain(row: RegistryRow) -> dict[str, Any]:
    return row.model_dump(mode="json", exclude_defaults=True)


def _aged(
    rows: list[RegistryRow], fingerprints: dict[str, Fingerprint]
) -> tuple[list[RegistryRow], dict[str, Fingerprint]]:
    """Rows of the format without attributes under fingerprints of their own, related to the true ones.

    Which attributes they were measured with is not known, so that they are tried again.
    """
    renamed = {
        old: value.model_copy(update={"exact": {**value.exact, "registry format": str(_OLDER)}})
        for old, value in fingerprints.items()
    }
    moved = [row.model_copy(update={"fingerprint": renamed[row.fingerprint].digest}) for row in rows]
    return moved, {value.digest: value for value in renamed.values()}
