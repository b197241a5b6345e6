"""Records kept by key in the run store: a killed run, or the next one, goes on from what is there."""

from __future__ import annotations

from typing import TypeVar

from pydantic import ValidationError

from day0.adapters.base.run_store import RunStore

from .record import StageRecord

Record = TypeVar("Record", bound=StageRecord)


def load_record(store: RunStore, kind: type[Record], stage: str, key: str) -> Record | None:
    """The stored record of that key; None where there is none or where its file is damaged."""
    name = _name(stage, key)
    if not store.exists(name):
        return None
    try:
        record = kind.model_validate_json(store.read(name))
    except ValidationError:
        return None
    if record.key != key or any(not store.exists(path) for path in record.files.values()):
        return None
    return record


def save_record(store: RunStore, record: StageRecord) -> str:
    """Writes the record under its key and returns its path."""
    return store.write(_name(record.stage, record.key), record.model_dump_json().encode())


def _name(stage: str, key: str) -> str:
    return f"records/{stage}/{key}.json"
