"""A checkpoint of GGUF files, read by the `gguf` package."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from day0.adapters.base.checkpoint import TensorFault, TensorInfo
from day0.adapters.base.errors import CheckpointError, SourceError
from day0.adapters.base.source import Source
from day0.adapters.base.values import Anomaly

from .naming import families
from .safetensors_header import Place
from .shard_headers import broken
from .table import TensorTable

SUFFIX = ".gguf"
_PLAIN = {
    "F64": "fp64", "F32": "fp32", "F16": "fp16", "BF16": "bf16",
    "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64",
}  # fmt: skip


class GgufCheckpoint:
    """Tensors by name; block-quantised ones bear the block type's own name, e.g. `q4_1`.

    Args:
        source: where the files are.
        shards: the files, in natural order.
        rows: tensor -> file and place.
        header_bytes: of all files.
        anomalies: what is wrong.
    """

    format = "gguf"

    def __init__(
        self,
        source: Source,
        shards: Sequence[str],
        rows: Mapping[str, tuple[str, Place]],
        header_bytes: int,
        anomalies: Sequence[Anomaly],
    ) -> None:
        self._source = source
        self._table = TensorTable(rows)
        self._identities = {file.path: file.identity for file in source.files()}
        self.shards = tuple(shards)
        self.header_bytes = header_bytes
        self.anomalies: Sequence[Anomaly] = tuple(anomalies)
        self.faults: Sequence[TensorFault] = ()

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """All tensors of readable files."""
        return self._table

    def identity(self, name: str) -> str:
        """Identity of the tensor's file with its place in it."""
        file, (dtype, shape, offset, _) = self._table.place(name)
        return f"{self._identities[file]}:{offset}:{dtype}:{','.join(map(str, shape))}"

    def path(self, name: str) -> Path:
        """The local file that holds the tensor.

        Raises:
            SourceError: it cannot be fetched.
        """
        return self._source.local_path(self._table.place(name)[0])

    def read(self, name: str) -> bytes:
        """The tensor's bytes as stored, blocks and all.

        Raises:
            CheckpointError: E301, the file ends before the tensor does.
        """
        file, (_, _, offset, length) = self._table.place(name)
        data = self._source.read(file, offset, offset + length)
        if len(data) < length:
            raise CheckpointError(
                f"tensor {name} of {file} has {length} bytes, only {len(data)} of them are there",
                code="E301",
                remedy="Fetch the file again.",
            )
        return data


def open_gguf(source: Source) -> GgufCheckpoint:
    """Reads the tensor lists of the likeliest set of GGUF files, fetched whole where they are remote.

    Raises:
        SourceError: a file cannot be fetched.
    """
    sets = families((file.path for file in source.files()), SUFFIX)
    shards = sets[0].files
    rows: dict[str, tuple[str, Place]] = {}
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
        rows |= {tensor.name: (shard, _place(tensor)) for tensor in reader.tensors}
    return GgufCheckpoint(source, shards, rows, header_bytes, anomalies)


def _reader(path: Path) -> Any:
    from gguf import GGUFReader  # numpy and a minute of nothing else need not be loaded for safetensors

    return GGUFReader(path)


def _place(tensor: Any) -> Place:
    kind = tensor.tensor_type.name
    shape = tuple(int(dim) for dim in reversed(tensor.shape))  # GGUF lists the fastest dimension first
    return _PLAIN.get(kind, kind.lower()), shape, int(tensor.data_offset), int(tensor.n_bytes)
