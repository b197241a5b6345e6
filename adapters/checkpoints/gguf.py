"""A checkpoint of GGUF files, read by the `gguf` package."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from day0.adapters.base.checkpoint import TensorBlock, TensorKind
from day0.adapters.base.errors import SourceError
from day0.adapters.base.source import Source
from day0.adapters.base.values import Anomaly, digest

from .naming import families
from .shard_headers import broken
from .tensor_files import HeadersRead, TensorFiles

SUFFIX = ".gguf"
_PLAIN = {
    "F64": "fp64", "F32": "fp32", "F16": "fp16", "BF16": "bf16",
    "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64",
}  # fmt: skip


def open_gguf(source: Source) -> TensorFiles:
    """Reads the tensor lists of the likeliest set of GGUF files, fetched whole where they are remote.

    Raises:
        SourceError: a file cannot be fetched.
    """
    sets = families((file.path for file in source.files()), SUFFIX)
    shards = sets[0].files
    blocks: list[TensorBlock] = []
    layout: dict[str, str] = {}
    seen: set[str] = set()
    anomalies: list[Anomaly] = [
        Anomaly(
            code="other_weights",
            subject=family.stem,
            message=f"{len(family.files)} GGUF files of {family.stem} are not part of the canonical set",
            evidence=", ".join(family.files[:5]),
        )
        for family in sets[1:]
    ]
    header_bytes = 0
    for shard in shards:
        try:
            reader = _reader(source.local_path(shard))
        except (SourceError, ValueError, KeyError, IndexError, OverflowError, OSError, struct.error) as error:
            anomalies.append(broken("gguf_unreadable", shard, str(error) or type(error).__name__))
            continue
        header_bytes += int(reader.data_offset)
        rows = {tensor.name: _place(tensor) for tensor in reader.tensors if tensor.name not in seen}
        seen.update(rows)
        layout[shard] = digest([[name, *kind, start] for name, (kind, start) in rows.items()])
        kinds, starts = ([place[column] for place in rows.values()] for column in (0, 1))
        blocks.append(TensorBlock(shard, list(rows), kinds, starts))  # type: ignore[arg-type]  # columns
    return TensorFiles(source, HeadersRead("gguf", shards, blocks, layout, header_bytes, anomalies))


def _reader(path: Path) -> Any:
    from gguf import GGUFReader  # numpy and a minute of nothing else need not be loaded for safetensors

    return GGUFReader(path)


def _place(tensor: Any) -> tuple[TensorKind, int]:
    kind = tensor.tensor_type.name
    shape = tuple(int(dim) for dim in reversed(tensor.shape))  # GGUF lists the fastest dimension first
    return TensorKind(_PLAIN.get(kind, kind.lower()), shape, int(tensor.n_bytes)), int(tensor.data_offset)
