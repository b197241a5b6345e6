"""Reads one tensor file from its first byte to its last: hashes it and looks at every number, at once.

Memory: `BUFFERS` buffers of `BUFFER` bytes, and the temporary arrays of `scan` (a few `scan.BLOCK`).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from day0.adapters.base.errors import SourceError
from day0.adapters.base.source import SourceFile
from day0.adapters.sources.content_hash import hasher, vouched_hash

from .scan import Tally, scan, width_of

BUFFER = 4 * 2**20
BUFFERS = 4


class Stored(NamedTuple):
    """Where a tensor lies in its file; a release may have half a million of them."""

    name: str
    dtype: str
    offset: int
    bytes: int


class Piece(NamedTuple):
    """Consecutive bytes of a file that belong to one tensor, or to none.

    Attributes:
        start: in the file.
        stop: the byte after the last.
        tensor: name; empty for the header and for holes.
        dtype: of the tensor.
    """

    start: int
    stop: int
    tensor: str
    dtype: str


@dataclass(frozen=True)
class FileContent:
    """What a file holds.

    Attributes:
        sha256: of all of it.
        vouched: the hash of the kind that the source gives; empty where it gives none.
        tallies: tensor -> what was seen of it.
    """

    sha256: str
    vouched: str
    tallies: dict[str, Tally]


def read_content(
    file: SourceFile, path: Path, tensors: Sequence[Stored], arrived: Callable[[int], None]
) -> FileContent:
    """Reads a file.

    Args:
        file: as listed.
        path: where it is on this machine.
        tensors: that it holds.
        arrived: told bytes as they are read.

    Raises:
        SourceError: E203 it cannot be read; E214 it is not as long as listed, or changes while it is read.
    """
    vouched = vouched_hash(file)
    states = {"sha256": hasher("sha256", file.size)}
    if vouched is not None and vouched.kind != "sha256":
        states[vouched.kind] = hasher(vouched.kind, file.size)
    tallies = {info.name: Tally(info.dtype) for info in tensors}
    try:
        with path.open("rb", buffering=0) as opened:
            before = os.fstat(opened.fileno())
            if before.st_size != file.size:
                raise _changed(file, f"has {before.st_size} bytes, {file.size} by the listing")
            _read(opened, list(_pieces(file.size, tensors)), tuple(states.values()), tallies, arrived)
            after = os.fstat(opened.fileno())
    except OSError as error:
        raise SourceError(
            f"file {file.path} cannot be read: {error.strerror or error}",
            code="E203",
            remedy="Check the file's permissions and the disk.",
        ) from error
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise _changed(file, "changed while it was read")
    digests = {kind: state.hexdigest() for kind, state in states.items()}
    return FileContent(digests["sha256"], digests[vouched.kind] if vouched else "", tallies)


def _changed(file: SourceFile, how: str) -> SourceError:
    return SourceError(f"file {file.path} {how}", code="E214", remedy="Wait until it is complete, run again.")


def _pieces(size: int, tensors: Sequence[Stored]) -> Iterator[Piece]:
    """The whole file in order. A tensor beyond its end counts as far as it goes, an overlapping one not."""
    position = 0
    for info in sorted(tensors, key=lambda info: info.offset):
        start, stop = max(info.offset, position), min(info.offset + info.bytes, size)
        if start > info.offset or stop <= start:
            continue
        yield from _cut(Piece(position, start, "", ""), BUFFER)
        whole = start + (stop - start) // width_of(info.dtype) * width_of(info.dtype)
        yield from _cut(Piece(start, whole, info.name, info.dtype), BUFFER)
        position = whole
    yield from _cut(Piece(position, size, "", ""), BUFFER)


def _cut(piece: Piece, length: int) -> Iterator[Piece]:
    for start in range(piece.start, piece.stop, length):
        yield piece._replace(start=start, stop=min(start + length, piece.stop))


def _batches(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Consecutive pieces that together fit into a buffer."""
    batch: list[Piece] = []
    for piece in pieces:
        if batch and piece.stop - batch[0].start > BUFFER:
            yield batch
            batch = []
        batch.append(piece)
    if batch:
        yield batch


def _read(
    opened: Any,
    pieces: Sequence[Piece],
    states: Sequence[Any],
    tallies: dict[str, Tally],
    arrived: Callable[[int], None],
) -> None:
    """One thread reads, one hashes (in order), one looks at the numbers."""
    free = [memoryview(bytearray(BUFFER)) for _ in range(BUFFERS)]
    busy: deque[tuple[memoryview, Future[None], Future[None]]] = deque()

    def take() -> memoryview:
        if free:
            return free.pop()
        buffer, *running = busy.popleft()
        for future in running:
            future.result()
        return buffer

    with ThreadPoolExecutor(1, "hash") as hashes, ThreadPoolExecutor(1, "scan") as scans:
        for batch in _batches(pieces):
            buffer, length = take(), batch[-1].stop - batch[0].start
            _fill(opened, buffer[:length])
            hashing = hashes.submit(_hash, states, buffer[:length])
            busy.append((buffer, hashing, scans.submit(_scan, batch, buffer, tallies)))
            arrived(length)
        for _, hashing, scanning in busy:
            hashing.result()
            scanning.result()


def _fill(opened: Any, buffer: memoryview) -> None:
    done = 0
    while done < len(buffer):
        count = opened.readinto(buffer[done:])
        if not count:
            raise OSError("the file has become shorter")
        done += count


def _hash(states: Sequence[Any], data: memoryview) -> None:
    for state in states:
        state.update(data)


def _scan(batch: Sequence[Piece], buffer: memoryview, tallies: dict[str, Tally]) -> None:
    base = batch[0].start
    for piece in batch:
        if piece.tensor:
            tallies[piece.tensor].merge(scan(piece.dtype, buffer[piece.start - base : piece.stop - base]))
