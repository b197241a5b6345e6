"""Which requests bring a set of byte ranges: neighbours together, large ones in several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

UNIT = 32 * 2**20
"""Bytes of one request."""

_GAP = 4096  # bytes between two ranges that are cheaper to read than another request,
_WASTE = 64  # and no more than this part of what is wanted before them

Key = tuple[str, int, int]
"""File, first byte, bytes."""

Piece = tuple[Key | None, int, int]
"""Part of a tensor, from and to which of its bytes; no tensor: bytes between two that nobody wants."""


def requests(keys: Sequence[Key]) -> Iterator[tuple[str, int, list[Piece]]]:
    """File, first byte and pieces of each request.

    Args:
        keys: sorted.
    """
    file, start, end = "", 0, 0
    pieces: list[Piece] = []
    for key in keys:
        for first in range(0, key[2], UNIT):
            last = min(first + UNIT, key[2])
            gap = key[1] + first - end
            bridged = 0 <= gap <= min(_GAP, (end - start) // _WASTE)
            near = file == key[0] and bridged and end + gap + last - first - start <= UNIT
            if pieces and not near:
                yield file, start, pieces
                pieces = []
            if not pieces:
                file, start = key[0], key[1] + first
            elif gap:
                pieces.append((None, 0, gap))
            pieces.append((key, first, last))
            end = key[1] + last
    if pieces:
        yield file, start, pieces
