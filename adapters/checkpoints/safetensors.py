"""A checkpoint of safetensors shards."""

from __future__ import annotations

import posixpath
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from day0.adapters.base.checkpoint import TensorFault, TensorInfo
from day0.adapters.base.errors import CheckpointError
from day0.adapters.base.source import Source
from day0.adapters.base.values import Anomaly

from .index import Index, choose_index, read_index
from .naming import Family, families, natural_key
from .reconcile import check_total, merge, reconcile
from .safetensors_header import LENGTH_BYTES, Header, Place
from .shard_headers import read_headers
from .table import TensorTable

SUFFIX = ".safetensors"
MAX_KEPT = 2  # releases whose tables stay in memory; the largest known takes some 100 MB
Rows = dict[str, tuple[str, Place]]


class SafetensorsCheckpoint:
    """Tensors by name out of the headers of one canonical set of shards; bytes only when asked for.

    Args:
        source: where the files are.
        shards: the canonical set, in natural order.
        rows: tensor -> file and place.
        header_bytes: read in all.
        anomalies: what is wrong with index, headers and files.
    """

    format = "safetensors"

    def __init__(
        self,
        source: Source,
        shards: Sequence[str],
        rows: Rows,
        header_bytes: int,
        anomalies: Sequence[Anomaly],
    ) -> None:
        self._source = source
        self._table = TensorTable(rows)
        self._files = {file.path: file for file in source.files()}
        self.shards = tuple(shards)
        self.header_bytes = header_bytes
        self.anomalies: Sequence[Anomaly] = tuple(anomalies)
        self.faults: Sequence[TensorFault] = ()

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """All tensors of readable headers, in the order of the shards and of the data within them."""
        return self._table

    def identity(self, name: str) -> str:
        """Identity of the tensor's file with its place in it."""
        file, (dtype, shape, offset, _) = self._table.place(name)
        return f"{self._files[file].identity}:{offset}:{dtype}:{','.join(map(str, shape))}"

    def path(self, name: str) -> Path:
        """The local file that holds the tensor, fetched first where it is remote.

        Raises:
            SourceError: it cannot be fetched.
        """
        return self._source.local_path(self._table.place(name)[0])

    def read(self, name: str) -> bytes:
        """The tensor's bytes as stored.

        Raises:
            CheckpointError: E301, the file ends before the tensor does.
        """
        file, (_, _, offset, length) = self._table.place(name)
        size = self._files[file].size
        data = self._source.read(file, offset, offset + length) if offset <= size else b""
        if len(data) < length:
            raise CheckpointError(
                f"tensor {name} should end at byte {offset + length} of {file}, which has {size}",
                code="E301",
                remedy="Fetch the shard again.",
            )
        return data


def open_safetensors(source: Source) -> SafetensorsCheckpoint:
    """Reads index and headers of the canonical set of shards and holds them against each other.

    A run opens the same release once a stage; what was read of a pinned revision is kept, so that a hub is
    asked for each header once.

    Raises:
        InputError: the hub refuses or cannot be reached.
        SourceError: the listing cannot be had.
    """
    key = (source.name, source.revision)
    with _LOCK:
        known = _READ.pop(key, None)
        if known is not None:
            _READ[key] = known
    if known is None:
        known = _read(source)
        if not any(anomaly.code == "shard_unreadable" for anomaly in known.anomalies):  # may pass
            with _LOCK:
                _READ[key] = known
                while len(_READ) > MAX_KEPT:
                    _READ.pop(next(iter(_READ)))
    return SafetensorsCheckpoint(source, known.shards, known.rows, known.header_bytes, known.anomalies)


@dataclass(frozen=True)
class _Read:
    shards: Sequence[str]
    rows: Rows
    header_bytes: int
    anomalies: Sequence[Anomaly]


_READ: dict[tuple[str, str], _Read] = {}
_LOCK = threading.Lock()


def _read(source: Source) -> _Read:
    sizes = {file.path: file.size for file in source.files()}
    index, anomalies = _index(source, sizes)
    shards, more = _canonical(sizes, index)
    anomalies += more
    headers: dict[str, Header] = {}
    unreadable: list[str] = []
    for shard, header in read_headers(source, shards, sizes):
        if isinstance(header, Anomaly):
            anomalies.append(header)
            unreadable.append(shard)
        else:
            headers[shard] = header
            anomalies += check_size(shard, header, sizes[shard])
    rows, held, duplicates = merge({shard: header.places for shard, header in headers.items()}, index)
    anomalies += duplicates
    if index is not None:
        anomalies += reconcile(index, held, unreadable, sizes)
        data_bytes = sum(place[3] for _, place in rows.values())
        if not unreadable and all(file in sizes for file in set(index.shard_of.values())):
            anomalies += check_total(index, data_bytes, sum(sizes[shard] for shard in shards))
    header_bytes = sum(LENGTH_BYTES + header.length for header in headers.values())
    return _Read(shards, rows, header_bytes, anomalies)


def _index(source: Source, sizes: Mapping[str, int]) -> tuple[Index | None, list[Anomaly]]:
    path = choose_index(sizes)
    if path is None:
        return None, []
    index, anomalies = read_index(source, path, sizes[path])
    if index is not None and index.shard_of and not any(file in sizes for file in index.shard_of.values()):
        shards = [path for path in sizes if path.endswith(SUFFIX) and "/" not in path]
        if shards:
            message = f"the index {path} names none of the {len(shards)} tensor files that are there"
            return None, [
                *anomalies,
                Anomaly(code="stale_index", subject=path, message=message, evidence=path),
            ]
    return index, anomalies


def _canonical(sizes: Mapping[str, int], index: Index | None) -> tuple[list[str], list[Anomaly]]:
    """The shards that count, and what is said about all other tensor files."""
    sets = families(sizes, SUFFIX)
    named = {file for file in index.shard_of.values() if file in sizes} if index is not None else set()
    chosen = _chosen(sets, named)
    shards = sorted(named | set(chosen.files), key=natural_key)
    anomalies = [_redundant(family, sizes) for family in sets if not set(family.files) & set(shards)]
    anomalies += [
        Anomaly(
            code="missing_shard",
            subject=f"{posixpath.join(chosen.folder, chosen.stem)}#{number}",
            message=f"shard {number} of {chosen.total} of {chosen.stem} is not there",
            evidence=chosen.files[0],
        )
        for number in chosen.absent[:100]
        if index is None or set(index.shard_of.values()) == named  # else the index names what is absent
    ]
    if index is None and len(shards) > 1:
        message = (
            f"{len(shards)} shards have no usable index beside them; the map is built from their headers"
        )
        anomalies.append(Anomaly(code="no_index", subject=chosen.stem, message=message, evidence=shards[0]))
    return shards, anomalies


def _chosen(sets: Sequence[Family], named: set[str]) -> Family:
    """The set to which most of the files belong that the index names; without an index the likeliest one."""
    best = max(sets, key=lambda family: len(named & set(family.files)))
    return best if named & set(best.files) else sets[0]


def _redundant(family: Family, sizes: Mapping[str, int]) -> Anomaly:
    held = sum(sizes[file] for file in family.files)
    subject = posixpath.join(family.folder, family.stem)
    message = (
        f"{len(family.files)} tensor files of {subject} with {held} bytes are not part of the canonical set"
    )
    return Anomaly(
        code="other_weights", subject=subject, message=message, evidence=", ".join(family.files[:5])
    )


def check_size(shard: str, header: Header, size: int) -> list[Anomaly]:
    """Whether the file is as long as its header says."""
    if size == header.end:
        return []
    if size < header.end:
        missing = header.end - size
        message = f"shard {shard} has {size} bytes, its header promises {header.end}: {missing} are missing"
        return [Anomaly(code="truncated_shard", subject=shard, message=message, evidence=shard)]
    message = f"shard {shard} has {size - header.end} bytes after the last tensor"
    return [Anomaly(code="trailing_bytes", subject=shard, message=message, evidence=shard)]
