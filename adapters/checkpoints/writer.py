"""Writes a sharded safetensors checkpoint, one tensor in memory at a time."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from day0.adapters.base.dtypes import FROM_SAFETENSORS, num_bytes
from day0.adapters.base.errors import CheckpointError

from .index import SUFFIX as INDEX_SUFFIX
from .safetensors_header import LENGTH_BYTES

TO_SAFETENSORS = {short: name for name, short in FROM_SAFETENSORS.items()}
_COPY_BYTES = 8 * 2**20

Tensor = tuple[str, str, Sequence[int], bytes | bytearray | memoryview]
"""Name, short dtype, shape, bytes as stored."""


@dataclass(frozen=True)
class _Spooled:
    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    length: int


def write_checkpoint(
    folder: Path, tensors: Iterable[Tensor], *, shards: int, metadata: Mapping[str, str] | None = None
) -> list[Path]:
    """Writes `model-0000N-of-0000M.safetensors` and their index, or `model.safetensors` for one shard.

    The tensors are spooled to disk first, because their number and sizes must be known before the first
    header is written; so the folder's disk needs twice their bytes meanwhile. Every file appears whole under
    its final name, the index last.

    Args:
        folder: made where it does not exist.
        tensors: in the order wanted; consumed once.
        shards: how many files; the bytes are spread evenly over them.
        metadata: for the files' `__metadata__`, besides the format.

    Returns:
        The files written, shards first.

    Raises:
        CheckpointError: E303, a tensor's bytes do not fit its dtype and shape, a name comes twice, the dtype
            has no safetensors name, or there are fewer tensors than shards.
    """
    folder.mkdir(parents=True, exist_ok=True)
    spool = folder / f".{uuid.uuid4().hex}.partial"
    try:
        with spool.open("w+b") as file:
            listed = _spool(file, tensors)
            groups = _split(listed, shards)
            names = _shard_names(len(groups))
            paths = [
                _write_shard(folder / name, group, file, metadata or {})
                for name, group in zip(names, groups, strict=True)
            ]
    finally:
        spool.unlink(missing_ok=True)
    if len(groups) > 1:
        weight_map = {entry.name: name for name, group in zip(names, groups, strict=True) for entry in group}
        index = {
            "metadata": {"total_size": sum(entry.length for entry in listed)},
            "weight_map": dict(sorted(weight_map.items())),
        }
        text = json.dumps(index, indent=2).encode()
        paths.append(write_whole(folder / f"model{INDEX_SUFFIX}", text))
    return paths


def write_whole(path: Path, data: bytes) -> Path:
    """Writes a file so that a reader sees all of it or none."""
    partial = path.with_name(f".{uuid.uuid4().hex}.partial")
    try:
        partial.write_bytes(data)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def _spool(file: BinaryIO, tensors: Iterable[Tensor]) -> list[_Spooled]:
    listed: list[_Spooled] = []
    seen: set[str] = set()
    start = 0
    for name, dtype, shape, data in tensors:
        elements = 1
        for dim in shape:
            elements *= dim
        length = len(memoryview(data).cast("B")) if len(data) else 0
        if dtype not in TO_SAFETENSORS or name in seen or length != num_bytes(dtype, elements):
            raise CheckpointError(
                f"tensor {name} cannot be written: {dtype} {list(shape)} with {length} bytes, "
                f"{'a name for the second time' if name in seen else 'which do not go together'}",
                code="E303",
            )
        file.write(data)
        listed.append(_Spooled(name, dtype, tuple(shape), start, length))
        seen.add(name)
        start += length
    return listed


def _split(listed: Sequence[_Spooled], shards: int) -> list[list[_Spooled]]:
    """Runs of tensors of nearly equal bytes, none empty."""
    if not 1 <= shards <= max(1, len(listed)):
        raise CheckpointError(f"{len(listed)} tensors cannot be spread over {shards} shards", code="E303")
    total = sum(entry.length for entry in listed)
    groups: list[list[_Spooled]] = [[]]
    filled = 0
    for position, entry in enumerate(listed):
        left = len(listed) - position
        due = filled >= total * len(groups) / shards
        must = left <= shards - len(groups)
        if groups[-1] and len(groups) < shards and (due or must):
            groups.append([])
        groups[-1].append(entry)
        filled += entry.length
    return groups


def _shard_names(count: int) -> list[str]:
    if count == 1:
        return ["model.safetensors"]
    return [f"model-{number:05d}-of-{count:05d}.safetensors" for number in range(1, count + 1)]


def _write_shard(path: Path, group: Sequence[_Spooled], spool: BinaryIO, metadata: Mapping[str, str]) -> Path:
    # Wide dtypes first keeps every tensor aligned to its own element, as the safetensors library does it.
    ordered = sorted(group, key=lambda entry: -num_bytes(entry.dtype, 8))
    header: dict[str, object] = {"__metadata__": {"format": "pt", **metadata}}
    position = 0
    for entry in ordered:
        header[entry.name] = {
            "dtype": TO_SAFETENSORS[entry.dtype],
            "shape": list(entry.shape),
            "data_offsets": [position, position + entry.length],
        }
        position += entry.length
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    partial = path.with_name(f".{uuid.uuid4().hex}.partial")
    try:
        with partial.open("wb") as file:
            file.write(len(raw).to_bytes(LENGTH_BYTES, "little") + raw)
            for entry in ordered:
                spool.seek(entry.start)
                _copy(spool, file, entry.length)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def _copy(source: BinaryIO, target: BinaryIO, length: int) -> None:
    left = length
    while left:
        data = source.read(min(left, _COPY_BYTES))
        target.write(data)
        left -= len(data)
