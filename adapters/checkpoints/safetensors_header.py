"""The header of one safetensors file, checked by every rule of the format.

The rules and limits are those of the `safetensors` crate 0.8 (`SafeTensors::read_metadata`,
`Metadata::validate`), which refuses a file that breaks any of them; Day0 says which one and goes on with the
other files.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from day0.adapters.base.checkpoint import TensorKind

from .header_columns import Columns, HeaderError, Known
from .header_entries import Entry, decode_entries, is_plain_metadata, pieces_of, split_metadata
from .large_json import fault_of_large
from .strict_json import JsonError, Pairs, parse_strict, shorten, unique

MAX_STRICT_BYTES = (
    32 * 2**20
)  # of a broken header that is searched for its fault; each byte becomes ten in memory
LENGTH_BYTES = 8  # the header's own length, little-endian, stands first
MAX_HEADER_BYTES = 100_000_000  # MAX_HEADER_SIZE of the crate
POINTER = b"version https://git-lfs"
_POINTER_FIELD = re.compile(rb"^(oid sha256:([0-9a-f]{64})|size ([0-9]{1,20}))\r?$", re.MULTILINE)


@dataclass(frozen=True)
class Header:
    """What one header declares; the columns are of equal length, in the order of the data.

    Attributes:
        names: of the tensors.
        kinds: dtype, shape and bytes of each.
        starts: first byte of each, from the start of the file.
        end: size that the file must have.
        length: bytes of the header itself, without the eight that give its length.
        digest: SHA-256 of the header's bytes.
    """

    names: Sequence[str]
    kinds: Sequence[TensorKind]
    starts: Sequence[int]
    end: int
    length: int
    digest: str


def header_length(first: bytes, file_size: int) -> int:
    """The header's length out of the file's first bytes.

    Args:
        first: at least the first eight bytes, or the whole file where it is shorter.
        file_size: size of the whole file.

    Raises:
        HeaderError: `too_small`, `lfs_pointer`, `header_too_large` or `header_truncated`.
    """
    if first.startswith(POINTER[:LENGTH_BYTES]):
        raise HeaderError("lfs_pointer", "a git-lfs pointer stands where the weights should be")
    if len(first) < LENGTH_BYTES:
        raise HeaderError("too_small", f"{file_size} bytes are too few for a safetensors file")
    length = int.from_bytes(first[:LENGTH_BYTES], "little")
    if length > MAX_HEADER_BYTES:
        raise HeaderError(
            "header_too_large", f"the header claims {length} bytes, the format allows {MAX_HEADER_BYTES}"
        )
    if LENGTH_BYTES + length > file_size:
        raise HeaderError(
            "header_truncated",
            f"the header claims {length} bytes, the file has {file_size - LENGTH_BYTES} left for it",
        )
    return length


def describe_pointer(text: bytes) -> str:
    """What a git-lfs pointer stands for: its hash and size as far as it names them."""
    found = {match[1].split(b" ")[0]: match for match in _POINTER_FIELD.finditer(text[:1024])}
    oid = found[b"oid"][2].decode() if b"oid" in found else "unknown"
    size = found[b"size"][3].decode() if b"size" in found else "unknown"
    return f"oid sha256:{oid}, size {size}"


def parse_header(raw: bytes, known: Known | None = None) -> Header:
    """Reads and checks a header.

    Args:
        raw: the header's bytes, without the eight that give its length.
        known: kinds that earlier headers of the release taught, added to.

    Raises:
        HeaderError: the rule that is broken.
    """
    known = known or Known()
    if raw[:1] != b"{":
        raise HeaderError("header_start", "the header does not start with '{'")
    columns = _quick(raw, known) or _strict(raw, known)
    base = LENGTH_BYTES + len(raw)
    if not columns.ordered:
        columns = columns.sorted()
    starts = array("Q", [start + base for start in columns.starts])
    return Header(
        columns.names,
        columns.kinds,
        starts,
        end=base + columns.expected,
        length=len(raw),
        digest=hashlib.sha256(raw).hexdigest(),
    )


def _quick(raw: bytes, known: Known) -> Columns | None:
    """The columns of a header as every writer makes it; None for one that is unusual or broken."""
    split = split_metadata(raw)
    if split is None:
        return None
    metadata, begin = split
    columns = Columns(known)
    for piece in pieces_of(raw, begin):
        if piece is None:
            return None
        if columns.extend_canonical(piece):
            continue
        entries = decode_entries(piece)
        if entries is None:
            return None
        columns.extend(entries)
    if len(set(columns.names)) < len(columns.names) or not is_plain_metadata(metadata):
        return None
    return columns


def _strict(raw: bytes, known: Known) -> Columns:
    """The same by a parser that says what is wrong."""
    if len(raw) > MAX_STRICT_BYTES:
        raise HeaderError("header_json", f"the header is {fault_of_large(raw)}")
    try:
        parsed = parse_strict(raw, _collapse({}))
    except JsonError as error:
        code = "header_duplicate" if "twice" in str(error) else "header_json"
        raise HeaderError(code, f"the header is {error}" if code == "header_json" else f"{error}") from None
    if not isinstance(parsed, dict):
        raise HeaderError("header_entry", "the header itself looks like a tensor")
    metadata = parsed.pop("__metadata__", None)
    if metadata is not None and not _holds_words(metadata):
        raise HeaderError("header_metadata", "__metadata__ is not an object of strings")
    columns = Columns(known)
    columns.extend(dict(_entries(parsed)))
    return columns


def _holds_words(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())


def _collapse(kinds: dict[Any, Any]) -> Callable[[Pairs], Any]:
    """A hook that makes each tensor's object three small values at once.

    The largest legal header holds a million tensors; as dictionaries they would take half a gigabyte more.

    Args:
        kinds: dtype and shape, shared by all tensors that have the same.
    """

    def collapse(pairs: Pairs) -> Any:
        found = unique(pairs)
        offsets = found.get("data_offsets")
        if not isinstance(offsets, list):
            return found
        try:
            kind = (found["dtype"], tuple(found["shape"]))
            start, end = offsets
        except (TypeError, KeyError, ValueError):
            return None
        try:
            return kinds.setdefault(kind, kind), start, end
        except TypeError:  # a list or an object where a word or a number belongs
            return kind, start, end

    return collapse


def _entries(parsed: dict[str, Any]) -> Iterator[tuple[str, Entry]]:
    while parsed:  # emptied on the way, so that a large header is not held twice
        name = next(iter(parsed))
        entry = parsed.pop(name)
        if not isinstance(entry, tuple):
            raise HeaderError(
                "header_entry", f"tensor {shorten(name)} lacks a proper dtype, shape or data_offsets"
            )
        (dtype, shape), start, end = entry
        if not isinstance(dtype, str):
            raise HeaderError("header_dtype", f"tensor {shorten(name)} has a dtype that is no word")
        if not all(type(dim) is int for dim in shape):
            raise HeaderError("header_shape", f"tensor {shorten(name)} has an impossible dimension")
        if type(start) is not int or type(end) is not int:
            raise HeaderError("header_offsets", f"tensor {shorten(name)} has impossible data_offsets")
        yield name, Entry(dtype, shape, (start, end))
