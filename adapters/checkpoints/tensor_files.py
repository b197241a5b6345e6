"""The tensors of a set of files, by name: from their headers at once, their bytes only when asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from day0.adapters.base.checkpoint import IndexSummary, TensorBlock, TensorFault, TensorInfo
from day0.adapters.base.errors import CheckpointError
from day0.adapters.base.progress import log_progress
from day0.adapters.base.source import Source
from day0.adapters.base.values import Anomaly
from day0.adapters.sources.ranges import joined
from day0.adapters.sources.staging import Wanted, local_part, read_part, stage_files, stager_of

from .filling import fill
from .table import TensorTable


@dataclass(frozen=True)
class HeadersRead:
    """What the headers of one canonical set of files say.

    Attributes:
        format: `safetensors` or `gguf`.
        shards: the set, in natural order, unreadable ones included.
        blocks: what each readable file holds; no tensor comes twice.
        layout: file -> digest of its header.
        header_bytes: of all readable files.
        anomalies: what is wrong with index, headers and files.
        faults: every tensor that is not consistent.
        index: what the index claims; None where none can be used.
    """

    format: str
    shards: Sequence[str]
    blocks: Sequence[TensorBlock]
    layout: Mapping[str, str]
    header_bytes: int
    anomalies: Sequence[Anomaly]
    faults: Sequence[TensorFault] = ()
    index: IndexSummary | None = None


class TensorFiles:
    """A checkpoint whose tensors lie in files of one format.

    Args:
        source: where the files are.
        read: what their headers say.
    """

    def __init__(self, source: Source, read: HeadersRead) -> None:
        self._source = source
        self._table = TensorTable(read.blocks)
        self._files = {file.path: file for file in source.files()}
        self.format = read.format
        self.shards = tuple(read.shards)
        self.layout = read.layout
        self.header_bytes = read.header_bytes
        self.anomalies: Sequence[Anomaly] = tuple(read.anomalies)
        self.faults: Sequence[TensorFault] = tuple(read.faults)
        self.index = read.index

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """All tensors of readable headers, in the order of the files and of the data within them."""
        return self._table

    def identity(self, name: str) -> str:
        """Identity of the tensor's file with its place in it."""
        file, kind, offset = self._table.place(name)
        return f"{self._files[file].identity}:{offset}:{kind.dtype}:{','.join(map(str, kind.shape))}"

    def path(self, name: str) -> Path:
        """A local file in which the tensor's bytes are; of a remote one these alone need be fetched.

        Raises:
            SourceError: it cannot be fetched.
        """
        file, kind, offset = self._table.place(name)
        return local_part(self._source, file, offset, offset + kind.bytes)

    def here(self, file: str) -> Path | None:
        """The file, where all of it is on this machine without anything being fetched."""
        stager = stager_of(self._source)
        return self._source.local_path(file) if stager is None else stager.whole(file)

    def read_into(self, file: str, start: int, parts: Sequence[memoryview]) -> None:
        """Fills parts, one behind the other, with a file's bytes; those of a remote one are kept nowhere.

        Raises:
            CheckpointError: E301, the file ends before they are full.
            SourceError: it cannot be read.
        """
        fill(self._source, file, start, parts)

    def fetch(self, names: Iterable[str]) -> None:
        """Stages the bytes of tensors of a remote release, see `fetch_tensors`.

        Raises:
            SourceError: they cannot be fetched.
        """
        if stager_of(self._source) is None:
            return
        places: dict[str, list[tuple[int, int]]] = {}
        for name in names:
            file, kind, offset = self._table.place(name)
            places.setdefault(file, []).append((offset, offset + kind.bytes))
        wanted = [Wanted(file, joined(ranges)) for file, ranges in places.items()]
        stage_files(self._source, wanted, log_progress)

    def read(self, name: str) -> bytes:
        """The tensor's bytes as stored, blocks and all.

        Raises:
            CheckpointError: E301, the file ends before the tensor does.
        """
        file, kind, offset = self._table.place(name)
        size = self._files[file].size
        data = read_part(self._source, file, offset, offset + kind.bytes) if offset <= size else b""
        if len(data) < kind.bytes:
            raise CheckpointError(
                f"tensor {name} should end at byte {offset + kind.bytes} of {file}, which has {size}",
                code="E301",
                remedy="Fetch the file again.",
            )
        return data
