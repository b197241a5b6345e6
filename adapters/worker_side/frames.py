"""Frames on the pipes: 8 bytes big-endian length and JSON, 8 bytes length and tensors.

The same code runs on both sides. A reader trusts nothing: lengths are checked against limits, memory grows
only as bytes arrive, JSON is parsed with bounds.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Callable, Dict, List, Tuple, Union

Buffer = Union[bytes, bytearray, memoryview]
ReadExactly = Callable[[int], bytearray]
"""Takes a number of bytes, returns exactly so many or raises (`EOFError`: the other side is gone)."""

MAX_JSON_BYTES = 256 * 2**20
MAX_BLOB_BYTES = 64 * 2**30
_LENGTH = struct.Struct(">Q")


class FrameError(Exception):
    """What arrived is not a frame: a length beyond the limit, or no JSON object."""


def pack(message: Dict[str, Any], blob: List[Buffer]) -> List[Buffer]:
    """One frame as buffers to be written one after the other.

    Args:
        message: strict JSON; non-finite floats must be encoded by the caller.
        blob: parts of the safetensors blob; empty for none.

    Raises:
        ValueError: the message is not strict JSON.
    """
    text = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
    size = sum(len(part) for part in blob)
    return [_LENGTH.pack(len(text)), text, _LENGTH.pack(size), *blob]


def unpack(
    read: ReadExactly, *, max_json: int = MAX_JSON_BYTES, max_blob: int = MAX_BLOB_BYTES
) -> Tuple[Dict[str, Any], bytearray]:
    """Reads one frame.

    Returns:
        The message and the blob, which is empty where there are no tensors.

    Raises:
        FrameError: it is not a frame.
        EOFError: the other side closed the pipe.
    """
    text = read(_length(read, max_json, "message"))
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"the message is not JSON: {type(error).__name__}, {bytes(text[:40])!r}") from None
    if not isinstance(message, dict):
        raise FrameError(f"the message is a JSON {type(message).__name__}, not an object")
    return message, read(_length(read, max_blob, "tensors"))


def _length(read: ReadExactly, limit: int, what: str) -> int:
    raw = bytes(read(_LENGTH.size))
    size = int(_LENGTH.unpack(raw)[0])
    if size > limit:
        raise FrameError(
            f"the length of the {what} is {size} bytes, the limit is {limit}; it began with {raw!r}"
        )
    return size
