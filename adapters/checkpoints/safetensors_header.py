"""The header of one safetensors file, checked by every rule of the format.

The rules and limits are those of the `safetensors` crate 0.8 (`SafeTensors::read_metadata`,
`Metadata::validate`), which refuses a file that breaks any of them; Day0 says which one and goes on with the
other files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from day0.adapters.base.dtypes import BITS, FROM_SAFETENSORS, num_bytes

from .strict_json import JsonError, Pairs, parse_strict, shorten, unique

LENGTH_BYTES = 8  # the header's own length, little-endian, stands first
MAX_HEADER_BYTES = 100_000_000  # MAX_HEADER_SIZE of the crate
MAX_NAME_LENGTH = 1_024  # real names stay below 200; a longer one is an attack on tables and logs
MAX_RANK = 64  # torch's own limit
MAX_DIM = 2**63 - 1  # torch counts in signed 64-bit integers
_POINTER = b"version https://git-lfs"
_POINTER_FIELD = re.compile(rb"^(oid sha256:([0-9a-f]{64})|size ([0-9]{1,20}))$", re.MULTILINE)

Place = tuple[str, tuple[int, ...], int, int]
"""Short dtype, shape, first byte from the start of the file, length in bytes."""


class HeaderError(ValueError):
    """A header that breaks a rule.

    Args:
        code: short stable word for the rule.
        reason: what was found, with the numbers.
    """

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


@dataclass(frozen=True)
class Header:
    """What one header declares.

    Attributes:
        places: tensor name -> where it lies, in the order of the data.
        metadata: `__metadata__`; empty where there is none.
        end: size that the file must have.
        length: bytes of the header itself, without the eight that give its length.
    """

    places: Mapping[str, Place]
    metadata: Mapping[str, str]
    end: int
    length: int


def header_length(first: bytes, file_size: int) -> int:
    """The header's length out of the file's first bytes.

    Args:
        first: at least the first eight bytes, or the whole file where it is shorter.
        file_size: size of the whole file.

    Raises:
        HeaderError: `too_small`, `lfs_pointer`, `header_too_large` or `header_truncated`.
    """
    if first.startswith(_POINTER[:LENGTH_BYTES]):
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


def parse_header(raw: bytes) -> Header:
    """Reads and checks a header.

    Args:
        raw: the header's bytes, without the eight that give its length.

    Raises:
        HeaderError: the rule that is broken.
    """
    if raw[:1] != b"{":
        raise HeaderError("header_start", "the header does not start with '{'")
    try:
        parsed = parse_strict(raw, _collapse({}))
    except JsonError as error:
        code = "header_duplicate" if "twice" in str(error) else "header_json"
        raise HeaderError(code, f"the header is {error}" if code == "header_json" else f"{error}") from None
    if not isinstance(parsed, dict):
        raise HeaderError("header_entry", "the header itself looks like a tensor")
    metadata = _metadata(parsed.pop("__metadata__", None))
    rows = _rows(parsed)
    base = LENGTH_BYTES + len(raw)
    return Header(_contiguous(rows, base), metadata, end=base + (rows[-1][1] if rows else 0), length=len(raw))


Kind = tuple[Any, tuple[Any, ...]]


def _collapse(kinds: dict[Kind, Kind]) -> Callable[[Pairs], Any]:
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
            return kinds.setdefault(kind, kind), start, end
        except (TypeError, KeyError, ValueError):
            return None

    return collapse


def _metadata(value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise HeaderError("header_metadata", "__metadata__ is not an object of strings")
    return value


Row = tuple[int, int, str, str, tuple[int, ...]]


def _rows(parsed: dict[str, Any]) -> list[Row]:
    """First and last byte, name, dtype and shape of every tensor, in the order of the data."""
    known: dict[Kind, tuple[str, tuple[int, ...], int]] = {}
    rows: list[Row] = []
    while parsed:  # emptied on the way, so that a large header is not held twice
        name, entry = parsed.popitem()
        if len(name) > MAX_NAME_LENGTH:
            raise HeaderError("header_name", f"tensor name {shorten(name)} has {len(name)} characters")
        if not isinstance(entry, tuple):
            raise HeaderError(
                "header_entry", f"tensor {shorten(name)} lacks a proper dtype, shape or data_offsets"
            )
        key, start, end = entry
        kind = known.get(key)
        if kind is None:
            kind = known[key] = _checked_kind(name, *key)
        if type(start) is not int or type(end) is not int or not 0 <= start <= end:
            raise HeaderError("header_offsets", f"tensor {shorten(name)} has impossible data_offsets")
        if end - start != kind[2]:
            raise HeaderError(
                "header_size",
                f"tensor {shorten(name)} has {end - start} bytes, {kind[0]} {list(kind[1])} needs {kind[2]}",
            )
        rows.append((start, end, name, kind[0], kind[1]))
    rows.sort()
    return rows


def _checked_kind(name: str, dtype: Any, shape: Sequence[Any]) -> tuple[str, tuple[int, ...], int]:
    short = FROM_SAFETENSORS.get(dtype) if isinstance(dtype, str) else None
    if short is None:
        raise HeaderError(
            "header_dtype", f"tensor {shorten(name)} has the unknown dtype {shorten(str(dtype))}"
        )
    if len(shape) > MAX_RANK:
        raise HeaderError("header_shape", f"tensor {shorten(name)} has {len(shape)} dimensions")
    elements = 1
    for dim in shape:
        if type(dim) is not int or not 0 <= dim <= MAX_DIM:
            raise HeaderError("header_shape", f"tensor {shorten(name)} has an impossible dimension")
        elements *= dim
    if elements > MAX_DIM:
        raise HeaderError("header_shape", f"tensor {shorten(name)} has more elements than can be counted")
    if BITS[short] * elements % 8:
        raise HeaderError(
            "header_bits", f"tensor {shorten(name)} does not fill whole bytes: {elements} elements of {short}"
        )
    return short, tuple(shape), num_bytes(short, elements)


def _contiguous(rows: Sequence[Row], base: int) -> dict[str, Place]:
    places: dict[str, Place] = {}
    expected = 0
    for start, end, name, dtype, shape in rows:
        if start != expected:
            what = "a hole before" if start > expected else "an overlap at"
            raise HeaderError(
                "header_gap", f"the data have {what} tensor {shorten(name)}: byte {start} for {expected}"
            )
        places[name] = (dtype, shape, base + start, end - start)
        expected = end
    return places
