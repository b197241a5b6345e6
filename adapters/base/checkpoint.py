"""What a checkpoint must do: its tensors, as headers first and bytes on demand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from .values import Anomaly, Value


class TensorInfo(Value):
    """One tensor as its file's header declares it.

    Attributes:
        name: as written in the file.
        dtype: short dtype name (`bf16`); for GGUF block types their own name, e.g. `q4_1`.
        shape: rows first.
        file: path of the file inside the release.
        offset: first byte, from the start of the file.
        bytes: length in bytes.
    """

    name: str
    dtype: str
    shape: Sequence[int]
    file: str
    offset: int
    bytes: int

    @property
    def elements(self) -> int:
        """Number of stored elements (packed containers counted as stored)."""
        total = 1
        for dim in self.shape:
            total *= dim
        return total


class TensorKind(NamedTuple):
    """What many tensors have in common; one value is shared by all of them.

    Attributes:
        dtype: short dtype name.
        shape: rows first.
        bytes: length of one of them.
    """

    dtype: str
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class TensorBlock:
    """The tensors of one file as columns of equal length; a release may have half a million rows.

    Attributes:
        file: path inside the release.
        names: as written in the file, in the order of the data.
        kinds: of each.
        starts: first byte of each, from the start of the file.
    """

    file: str
    names: Sequence[str]
    kinds: Sequence[TensorKind]
    starts: Sequence[int]


class TensorFault(NamedTuple):
    """A tensor about which index, headers and files disagree; every other tensor is consistent.

    Attributes:
        name: as written in the index or header.
        fault: `index_only`, `header_only`, `wrong_shard`, `duplicate`, `missing_shard` (the index places it
            in a file that is not there), `unreadable_shard` (in one whose header cannot be used), `cut_off`
            (it ends after its file does).
        file: that holds it or, for what only the index names, that should.
        kind: of the copy in that file; None but for duplicates.
        start: first byte of that copy, from the start of the file.
    """

    name: str
    fault: str
    file: str
    kind: TensorKind | None = None
    start: int = 0


class IndexSummary(NamedTuple):
    """What an index claims, without its map.

    Attributes:
        path: of the index.
        tensors: that it places.
        files: that it names, in natural order.
        total_size: as it states it; None where it states none or no integer.
        total_stated: the value in the place of the total as text, bounded; empty where there is none.
    """

    path: str
    tensors: int
    files: Sequence[str]
    total_size: int | None
    total_stated: str


def tensor_blocks(tensors: Mapping[str, TensorInfo]) -> Iterable[TensorBlock]:
    """Every tensor, file by file; a mapping with its own `blocks()` gives them without a value for each."""
    blocks = getattr(tensors, "blocks", None)
    if blocks is not None:
        held: Iterable[TensorBlock] = blocks()
        return held
    files: dict[str, list[TensorInfo]] = {}
    for info in tensors.values():
        files.setdefault(info.file, []).append(info)
    return [
        TensorBlock(
            file,
            [info.name for info in infos],
            [TensorKind(info.dtype, tuple(info.shape), info.bytes) for info in infos],
            [info.offset for info in infos],
        )
        for file, infos in files.items()
    ]


class Checkpoint(Protocol):
    """The tensors of one release.

    Attributes:
        format: `safetensors`, `gguf`, `pickle` or `none`.
        anomalies: what is wrong with index, headers and files; never empty silently.
        faults: every tensor that is not consistent, with what is wrong; a tensor may have more than one.
        index: what the index claims; None where there is none that can be used.
    """

    format: str
    anomalies: Sequence[Anomaly]
    faults: Sequence[TensorFault]
    index: IndexSummary | None

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """All readable tensors by name, from headers alone."""
        ...

    @property
    def shards(self) -> Sequence[str]:
        """The canonical tensor files, in natural order."""
        ...

    @property
    def header_bytes(self) -> int:
        """Bytes of all headers that were read."""
        ...

    @property
    def layout(self) -> Mapping[str, str]:
        """Tensor file -> digest of everything its header says; empty where that is not kept."""
        ...

    def identity(self, name: str) -> str:
        """Changes whenever the bytes of this tensor may have changed (its file's identity and its place)."""
        ...

    def path(self, name: str) -> Path:
        """The local file that holds the tensor, fetched first where it is remote."""
        ...

    def read(self, name: str) -> bytes:
        """The tensor's bytes as stored.

        Raises:
            CheckpointError: the file ends before the tensor does.
        """
        ...


def fetch_tensors(checkpoint: Checkpoint, names: Iterable[str]) -> None:
    """Brings the bytes of tensors to this machine side by side, where the checkpoint is remote and can.

    Without it `path` and `read` fetch one tensor after the other, each with a request of its own.

    Raises:
        SourceError: they cannot be fetched.
    """
    fetch = getattr(checkpoint, "fetch", None)
    if fetch is not None:
        fetch(names)
