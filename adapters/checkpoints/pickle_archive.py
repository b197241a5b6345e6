"""The pickles inside a torch archive, found through the zip's central directory by ranges, within bounds."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .pickle_opcodes import PickleError

MAX_DIRECTORY = 8_000_000  # bytes; some 70,000 members, torch writes one a tensor
MAX_MEMBERS = 32  # pickles of one archive; torch writes one or two
MAX_UNPACKED = 16_000_000  # bytes of one packed member
_TAIL = 65_557  # the end record and the longest comment
_END, _LOCATOR, _END64, _ENTRY, _LOCAL = b"PK\5\6", b"PK\6\7", b"PK\6\6", b"PK\1\2", b"PK\3\4"

Fetch = Callable[[int, int], bytes]


@dataclass(frozen=True)
class Member:
    """One file of an archive.

    Attributes:
        name: as the central directory has it.
        method: 0 stored, 8 deflated.
        packed: bytes in the archive.
        size: bytes that it unpacks to, as stated.
        header: where its local header starts.
    """

    name: str
    method: int
    packed: int
    size: int
    header: int


def members(fetch: Fetch, size: int) -> Iterator[Member]:
    """All members, from the central directory.

    Raises:
        PickleError: there is no usable directory, or it is absurdly large.
    """
    start = max(size - _TAIL, 0)
    tail = fetch(start, size)
    at = tail.rfind(_END)
    if at < 0 or len(tail) - at < 22:
        raise PickleError("is an archive without a directory, cut short or damaged")
    _, _, _, number, length, offset, _ = struct.unpack("<4H2LH", tail[at + 4 : at + 22])
    if 0xFFFFFFFF in (length, offset) or number == 0xFFFF:
        number, length, offset = _wide(fetch, tail, at, size)
    if length > MAX_DIRECTORY:
        raise PickleError(f"has an archive directory of {length} bytes, more than {MAX_DIRECTORY}")
    if offset + length > size:
        raise PickleError("has an archive directory beyond its end")
    inside = offset >= start
    directory = tail[offset - start : offset - start + length] if inside else fetch(offset, offset + length)
    yield from _entries(directory)


def _wide(fetch: Fetch, tail: bytes, at: int, size: int) -> tuple[int, int, int]:
    """Zip64's end record: number of members, bytes and place of the directory."""
    locator = tail[max(at - 20, 0) : at]
    if not locator.startswith(_LOCATOR):
        raise PickleError("is an archive without its 64-bit directory")
    place = int.from_bytes(locator[8:16], "little")
    if place + 56 > size:
        raise PickleError("has an archive directory beyond its end")
    record = fetch(place, place + 56)
    if not record.startswith(_END64):
        raise PickleError("is an archive without its 64-bit directory")
    number, length, offset = struct.unpack("<3Q", record[32:56])
    return number, length, offset


def _entries(directory: bytes) -> Iterator[Member]:
    place = 0
    while place + 46 <= len(directory):
        if directory[place : place + 4] != _ENTRY:
            raise PickleError("has a damaged archive directory")
        method = int.from_bytes(directory[place + 10 : place + 12], "little")
        packed, size, name_length, extra_length, comment = struct.unpack(
            "<LLHHH", directory[place + 20 : place + 34]
        )
        header = int.from_bytes(directory[place + 42 : place + 46], "little")
        name_end = place + 46 + name_length
        extra = directory[name_end : name_end + extra_length]
        size, packed, header = _widened(extra, size, packed, header)
        name = directory[place + 46 : name_end].decode("utf-8", "replace")
        yield Member(name, method, packed, size, header)
        place = name_end + extra_length + comment


def _widened(extra: bytes, size: int, packed: int, header: int) -> tuple[int, int, int]:
    """The 64-bit numbers that stand in for those that are all ones, in their order."""
    place, values = 0, [size, packed, header]
    while place + 4 <= len(extra):
        kind, length = struct.unpack("<2H", extra[place : place + 4])
        body = extra[place + 4 : place + 4 + length]
        if kind == 1:
            for slot, value in enumerate(values):
                if value == 0xFFFFFFFF and len(body) >= 8:
                    values[slot], body = int.from_bytes(body[:8], "little"), body[8:]
        place += 4 + length
    return values[0], values[1], values[2]


def member_bytes(fetch: Fetch, size: int, member: Member) -> tuple[Fetch, int]:
    """How to fetch a member's bytes, and how many there are.

    Raises:
        PickleError: its local header is not where the directory says or names another file, it is packed in
            an unknown way, or it unpacks to more than `MAX_UNPACKED`.
    """
    if member.header + 30 > size:
        raise PickleError("has an archive directory that points beyond its end")
    local = fetch(member.header, min(member.header + 30 + 1024, size))
    if not local.startswith(_LOCAL):
        raise PickleError("has an archive directory that points nowhere")
    name_length, extra_length = struct.unpack("<2H", local[26:30])
    name = local[30 : 30 + name_length].decode("utf-8", "replace")
    if name != member.name:
        raise PickleError("has an archive whose two directories name different files")
    start = member.header + 30 + name_length + extra_length
    if start + member.packed > size:
        raise PickleError("has a member that ends beyond the archive")
    if member.method == 0:
        return (lambda first, last: fetch(start + first, start + last)), member.packed
    if member.method != 8:
        raise PickleError(f"has a member packed in way {member.method}")
    if member.packed > MAX_UNPACKED:
        raise PickleError(f"has a packed member of {member.packed} bytes, more than {MAX_UNPACKED}")
    try:
        unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
        data = unpacker.decompress(fetch(start, start + member.packed), MAX_UNPACKED)
    except zlib.error:
        raise PickleError("has a member that cannot be unpacked") from None
    if unpacker.unconsumed_tail:
        raise PickleError(f"has a member that unpacks to more than {MAX_UNPACKED} bytes")
    return (lambda first, last: data[first:last]), len(data)
