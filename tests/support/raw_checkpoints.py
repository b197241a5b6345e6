"""Safetensors files made byte by byte, without torch: small, damaged, or huge with holes for data."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from day0.adapters.base.dtypes import FROM_SAFETENSORS
from support.layouts import FIXTURES, expand_layout, truth

_SAFETENSORS = {short: name for name, short in FROM_SAFETENSORS.items()}
BYTES = {
    "F64": 8, "I64": 8, "F32": 4, "I32": 4, "U32": 4, "BF16": 2, "F16": 2, "I16": 2,
    "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "I8": 1, "U8": 1, "BOOL": 1,
}  # fmt: skip

Layout = Mapping[str, tuple[str, Sequence[int]]]
"""Tensor -> dtype as safetensors writes it, shape."""


def header_of(layout: Layout, metadata: Mapping[str, str] | None = None) -> tuple[bytes, int]:
    """The header's JSON and the bytes of data that belong to it."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    position = 0
    for name, (dtype, shape) in layout.items():
        length = BYTES[dtype]
        for dim in shape:
            length *= dim
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, position + length]}
        position += length
    return json.dumps(header, separators=(",", ":")).encode(), position


def write_raw(path: Path, header: bytes, data: bytes = b"", *, length: int | None = None) -> Path:
    """A file of that header and data, the length before it true unless given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((len(header) if length is None else length).to_bytes(8, "little") + header + data)
    return path


def write_filled(path: Path, layout: Layout, seed: str = "") -> Path:
    """A small whole file whose data follow from the tensors' names."""
    header, _ = header_of(layout, {"format": "pt"})
    data = b""
    for name, (dtype, shape) in layout.items():
        one, _ = header_of({name: (dtype, shape)})
        length = json.loads(one)[name]["data_offsets"][1]
        data += hashlib.shake_128(f"{seed}{name}".encode()).digest(length)
    return write_raw(path, header, data)


def write_sparse(path: Path, layout: Layout) -> Path:
    """A file with its real header and a hole in place of the data: openable, almost nothing on disk."""
    header, length = header_of(layout, {"format": "pt"})
    write_raw(path, header)
    os.truncate(path, 8 + len(header) + length)
    return path


def write_index(folder: Path, weight_map: Mapping[str, str], total_size: int) -> Path:
    """The index of those shards."""
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {"total_size": total_size}, "weight_map": dict(weight_map)}))
    return path


def write_sharded(folder: Path, layout: Layout, shards: int, *, sparse: bool = False) -> list[Path]:
    """Shards of nearly equal bytes in the order of the layout, with a true index."""
    sizes = {name: header_of({name: kind})[1] for name, kind in layout.items()}
    share, held = sum(sizes.values()) / shards, 0
    groups: list[dict[str, tuple[str, Sequence[int]]]] = [{} for _ in range(shards)]
    for name, kind in layout.items():
        groups[min(int(held / share), shards - 1)][name] = kind
        held += sizes[name]
    names = [f"model-{number:05d}-of-{shards:05d}.safetensors" for number in range(1, shards + 1)]
    write = write_sparse if sparse else write_filled
    paths = [write(folder / name, group) for name, group in zip(names, groups, strict=True)]
    owner = {tensor: name for name, group in zip(names, groups, strict=True) for tensor in group}
    write_index(folder, owner, held)
    return paths


def write_release(folder: Path, name: str) -> Path:
    """A sparse copy of a real release: true headers, index and config, holes for data."""
    folder.mkdir(parents=True, exist_ok=True)
    layout = {tensor: (_SAFETENSORS[dtype], shape) for tensor, dtype, shape in expand_layout(name)}
    write_sharded(folder, layout, truth(name)["totals.shards"], sparse=True)
    for config in (FIXTURES / "configs" / name).iterdir():
        (folder / config.name).write_bytes(config.read_bytes())
    return folder
