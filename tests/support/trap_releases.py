"""A small mixture of experts as files, its inventory, and the findings of one code."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from day0.adapters.base.dtypes import FROM_SAFETENSORS
from day0.adapters.checkpoints.release import open_release
from day0.tasks.finding import Finding
from day0.tasks.inventory.record import InventoryRecord
from day0.tasks.inventory.take import take_inventory
from support.layouts import layout_release
from support.raw_checkpoints import write_sharded
from support.small_releases import MIXTRAL, mixtral_tensors

INDEX = "model.safetensors.index.json"
_RAW = {short: name for name, short in FROM_SAFETENSORS.items()}


def layout(
    tensors: Mapping[str, tuple[str, Sequence[int]]] | None = None,
) -> dict[str, tuple[str, Sequence[int]]]:
    """A small mixture of experts as safetensors writes it."""
    return {name: (_RAW[dtype], shape) for name, (dtype, shape) in (tensors or mixtral_tensors()).items()}


def write_config(folder: Path, config: Mapping[str, Any] = MIXTRAL) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))


def write_mixtral(folder: Path, shards: int = 4) -> list[Path]:
    """A whole release of that model."""
    write_config(folder)
    return write_sharded(folder, layout(), shards)


def edit_index(folder: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    path = folder / INDEX
    index = json.loads(path.read_text())
    edit(index)
    path.write_text(json.dumps(index))


def take(folder: Path) -> InventoryRecord:
    return take_inventory(open_release(str(folder)))


@cache
def taken(name: str) -> InventoryRecord:
    """The inventory of a real release's layout."""
    return take_inventory(layout_release(name))


def of(record: InventoryRecord, code: str) -> list[Finding]:
    return [finding for finding in record.findings if finding.code == code]
