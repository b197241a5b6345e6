"""An inventory by name: a model, or a record that `day0 inventory --json` left in a file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from day0.adapters.base.errors import InputError
from day0.adapters.checkpoints.strict_json import JsonError, parse_strict
from day0.tasks.inventory.record import STAGE, InventoryFacts, InventoryRecord
from day0.tasks.job import RunOptions

from .single_stage import run_up_to

_LARGEST = 512 * 2**20  # a record of 500,000 tensors takes some megabytes
_INDEX = r"\d{1,9}(-\d{1,9}(:\d{1,9})?)?"
_INDICES = re.compile(rf"({_INDEX}(,{_INDEX})*)?")


def inventory_of(name: str, store: str, options: RunOptions) -> InventoryRecord:
    """The inventory of a model, or the one that lies in a file.

    Args:
        name: hub id, folder, bare config, `NAME@REV`, or path of a saved record.
        store: folder or fsspec URL.
        options: what changes the results.

    Raises:
        InputError: the model cannot be used; E168, the file holds no inventory that this version reads.
    """
    saved = _saved(Path(name))
    if saved is not None:
        return saved
    record = run_up_to(STAGE, name, None, None, store, options)
    assert isinstance(record, InventoryRecord)
    return record


def _saved(path: Path) -> InventoryRecord | None:
    """The record that lies in that file; None where it is no such file."""
    if path.suffix.lower() != ".json" or not path.is_file() or path.stat().st_size > _LARGEST:
        return None
    try:
        held = parse_strict(path.read_bytes())
    except (OSError, JsonError):
        return None  # whatever it is, what takes inventories says what is wrong with it
    if not isinstance(held, Mapping) or held.get("stage") != STAGE:
        return None
    try:
        return _record(held)
    except (ValidationError, ValueError) as error:
        raise InputError(
            f"{path} says that it is an inventory, but this version cannot read it: {_first(error)}",
            code="E168",
            remedy="Make it anew with `day0 inventory MODEL --json`.",
        ) from error


def _record(held: Mapping[str, Any]) -> InventoryRecord:
    """From what `--json` writes (facts at the top), or from a record as the run store keeps it."""
    if "facts" in held:
        record = InventoryRecord.model_validate(held)
    else:
        facts = {key: value for key, value in held.items() if key in InventoryFacts.model_fields}
        fields = ("verdict", "findings", "observations", "sources", "key")
        record = InventoryRecord.model_validate(
            {"facts": facts, **{key: held[key] for key in fields if key in held}}
        )
    for row in (*record.facts.patterns, *record.facts.implied.patterns):
        if not _INDICES.fullmatch(row.layers):
            raise ValueError(f"{row.layers[:40]!r} is no set of layers")
    return record


def _first(error: ValueError) -> str:
    if isinstance(error, ValidationError):
        told = error.errors(include_url=False)[0]
        return f"{'/'.join(str(part) for part in told['loc'])}: {told['msg']}"
    return str(error)
