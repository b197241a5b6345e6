"""Bytes of a file straight into memory that is there already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from day0.adapters.base.errors import CheckpointError
from day0.adapters.base.source import Source


def fill(source: Source, file: str, start: int, parts: Sequence[memoryview]) -> None:
    """Fills parts, one behind the other, with the bytes of a file from `start` on; nothing else is kept.

    Args:
        source: of the file; one that can stream it is not asked for all of it at once.
        file: path inside the release.
        start: first byte.
        parts: of bytes, writable.

    Raises:
        CheckpointError: E301, the file ends before they are full.
        SourceError: it cannot be read.
    """
    stop = start + sum(len(part) for part in parts)
    reached = start
    left = [part for part in parts if len(part)]
    for piece in _pieces(source, file, start, stop):
        reached += len(piece)
        while piece and left:
            taken = min(len(piece), len(left[0]))
            left[0][:taken] = piece[:taken]
            piece, left[0] = piece[taken:], left[0][taken:]
            if not len(left[0]):
                left.pop(0)
    if left:
        raise CheckpointError(
            f"{file} of {source.name} ended at byte {reached}, before byte {stop}",
            code="E301",
            remedy="Fetch the file again.",
        )


def _pieces(source: Source, file: str, start: int, stop: int) -> Iterable[memoryview]:
    stream: Any = getattr(source, "stream", None)
    if stop == start:
        return ()
    if stream is None:
        return (memoryview(source.read(file, start, stop)),)
    return map(memoryview, stream(file, start, stop))
