"""The header of one GGUF file: key-values and tensor list, read by growing ranges, never the weights.

The format is that of ggml `docs/gguf.md`, versions 2 and 3. The tokenizer's vocabulary lies in the header, so
that it may have some ten megabytes; nothing in it is kept but the words and numbers that describe the model.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from day0.adapters.base.checkpoint import TensorKind

from .strict_json import shorten

MAX_HEADER_BYTES = 200_000_000  # the largest vocabularies make some ten megabytes
MAX_TENSORS = 1_000_000
MAX_NAME_LENGTH = 1_024
MAX_RANK = 8  # ggml itself ends at four
FIRST_BYTES = 256 * 1024  # of the first range; each further one doubles what is held
_MAGIC = b"GGUF"
_SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_STRING, _ARRAY = 8, 9
_PLAIN = {
    "F64": "fp64", "F32": "fp32", "F16": "fp16", "BF16": "bf16",
    "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64",
}  # fmt: skip


class GgufError(ValueError):
    """The file breaks a rule of the format; the message says which."""


@dataclass(frozen=True)
class GgufHeader:
    """What one header declares.

    Attributes:
        version: of the format.
        values: key -> word or number; of an array its length alone, under `KEY#length`.
        tensors: name -> dtype, shape and bytes, and its first byte from the start of the file.
        length: bytes up to the data.
        end: size that the file must have at least.
    """

    version: int
    values: Mapping[str, Any]
    tensors: Mapping[str, tuple[TensorKind, int]]
    length: int
    end: int


def read_gguf_header(read: Callable[[int, int], bytes], size: int) -> GgufHeader:
    """Reads and checks a header.

    Args:
        read: gives bytes `start` to `stop` of the file.
        size: of the file.

    Raises:
        GgufError: the rule that is broken.
        SourceError: the file cannot be read.
    """
    cursor = _Cursor(read, min(size, MAX_HEADER_BYTES))
    if cursor.take(4) != _MAGIC:
        raise GgufError("the file does not begin with GGUF")
    version = cursor.number("<I")
    if version not in (2, 3):
        raise GgufError(f"version {version} of the format is not known here")
    tensors, keys = cursor.number("<Q"), cursor.number("<Q")
    if tensors > MAX_TENSORS or keys > MAX_TENSORS:
        raise GgufError(f"the header claims {tensors} tensors and {keys} keys")
    values: dict[str, Any] = {}
    for _ in range(keys):
        key = cursor.text(MAX_NAME_LENGTH)
        _value(cursor, key, cursor.number("<I"), values)
    rows = [_row(cursor) for _ in range(tensors)]
    alignment = values.get("general.alignment", 32)
    if type(alignment) is not int or not 0 < alignment <= 2**20 or alignment & (alignment - 1):
        raise GgufError(f"general.alignment is {alignment!r}, which is no power of two")
    length = -(-cursor.position // alignment) * alignment
    return _placed(version, values, rows, length, alignment)


class _Cursor:
    """Takes bytes one after the other, asking for more when they run out."""

    def __init__(self, read: Callable[[int, int], bytes], limit: int) -> None:
        self._read = read
        self._limit = limit
        self._held = b""
        self.position = 0

    def take(self, amount: int) -> bytes:
        stop = self.position + amount
        while stop > len(self._held):
            have = len(self._held)
            want = min(max(stop, 2 * have, FIRST_BYTES), self._limit)
            if want < stop:
                raise GgufError(f"the header ends after {self._limit} bytes, it needs {stop} or more")
            more = self._read(have, want)
            if not more:
                raise GgufError(f"the file ends after {have} bytes, within its header")
            self._held += more
        taken = self._held[self.position : stop]
        self.position = stop
        return taken

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def text(self, limit: int) -> str:
        length = self.number("<Q")
        if length > limit:
            raise GgufError(f"a text of {length} bytes stands where {limit} are the most")
        try:
            return self.take(length).decode("utf-8")
        except UnicodeDecodeError:
            raise GgufError("a text is not UTF-8") from None


def _value(cursor: _Cursor, key: str, kind: int, values: dict[str, Any], depth: int = 0) -> None:
    if kind in _SCALARS:
        values[key] = cursor.number(_SCALARS[kind])
    elif kind == _STRING:
        length = cursor.number("<Q")
        values[key] = cursor.take(length).decode("utf-8", "replace")
    elif kind == _ARRAY and depth < 4:
        _skip_array(cursor, key, values, depth)
    else:
        raise GgufError(f"key {shorten(key)} has a value of the unknown kind {kind}")


def _skip_array(cursor: _Cursor, key: str, values: dict[str, Any], depth: int) -> None:
    kind, length = cursor.number("<I"), cursor.number("<Q")
    values[f"{key}#length"] = length
    if kind in _SCALARS:
        cursor.take(struct.calcsize(_SCALARS[kind]) * length)
    elif kind == _STRING:
        for _ in range(length):  # each is eight bytes or more, so that the header's limit bounds them
            cursor.take(cursor.number("<Q"))
    else:
        for _ in range(length):
            _value(cursor, key, kind, {}, depth + 1)


Row = tuple[str, tuple[int, ...], int, int]


def _row(cursor: _Cursor) -> Row:
    """Name, shape, ggml type and first byte within the data of one tensor."""
    name, rank = cursor.text(MAX_NAME_LENGTH), cursor.number("<I")
    if rank > MAX_RANK:
        raise GgufError(f"tensor {shorten(name)} has {rank} dimensions")
    dims = struct.unpack(f"<{rank}Q", cursor.take(8 * rank))
    return name, tuple(reversed(dims)), cursor.number("<I"), cursor.number("<Q")


def _placed(
    version: int, values: Mapping[str, Any], rows: Sequence[Row], length: int, alignment: int
) -> GgufHeader:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType  # numpy need not be loaded for safetensors

    tensors: dict[str, tuple[TensorKind, int]] = {}
    end = length
    for name, shape, number, offset in rows:
        if name in tensors:
            raise GgufError(f"tensor {shorten(name)} comes twice")
        try:
            kind = GGMLQuantizationType(number)
            block, size = GGML_QUANT_SIZES[kind]
        except (ValueError, KeyError):
            raise GgufError(f"tensor {shorten(name)} has the unknown type {number}") from None
        elements = 1
        for dim in shape:
            elements *= dim
        if elements >= 2**63 or offset >= 2**63:
            raise GgufError(f"tensor {shorten(name)} has more elements or lies further than can be counted")
        if (shape and shape[-1] % block) or offset % alignment:
            raise GgufError(
                f"tensor {shorten(name)} does not fill whole blocks of {block}, or is not aligned"
            )
        word = _PLAIN.get(kind.name, kind.name.lower())
        held = TensorKind(word, shape, elements // block * size)
        tensors[name] = held, length + offset
        end = max(end, length + offset + held.bytes)
    return GgufHeader(version, values, tensors, length, end)
