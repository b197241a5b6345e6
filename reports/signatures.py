"""How far each node's output moved between two runs, from the signatures that they left in the store.

`tasks/numerics/measures/signatures.py` writes them and says what they are. Here they are read without
torch, which `day0 diff` and `report` never load: a safetensors file of fp32 vectors is a JSON header and
plain bytes.
"""

from __future__ import annotations

import json
import math
import sys
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from day0.adapters.base.run_store import RunStore
from day0.tasks.numerics.record import NumericsRecord

FILE = "signatures"
"""Name of the side file in the record."""
_PARTS = ("projection", "norms")


@dataclass(frozen=True)
class Kept:
    """A signature as numbers: projection onto the directions, norm of each token."""

    projection: Sequence[float]
    norms: Sequence[float]


def moves(store: RunStore, before: NumericsRecord, after: NumericsRecord) -> Mapping[str, float]:
    """Node -> how far its output moved, an estimate of relative L2; empty where a run left no signatures.

    A node whose output has another shape moved by infinity.
    """
    earlier, later = (_read(store, record.files.get(FILE, "")) for record in (before, after))
    return {name: moved(earlier[name], later[name]) for name in earlier if name in later}


def moved(before: Kept, after: Kept) -> float:
    """The same as `day0.tasks.numerics.measures.signatures.moved`, on plain numbers."""
    if len(before.norms) != len(after.norms) or len(before.projection) != len(after.projection):
        return math.inf
    scale = math.hypot(*before.norms)
    pairs = zip(after.projection, before.projection, strict=True)
    apart = math.hypot(*(new - old for new, old in pairs)) / math.sqrt(max(1, len(before.projection)))
    if scale > 0:
        return apart / scale
    return math.inf if apart > 0 else 0.0


def _read(store: RunStore, name: str) -> Mapping[str, Kept]:
    """The signatures of a run, by node; empty where the file is gone or damaged."""
    if not name or not store.exists(name):
        return {}
    try:
        return _parsed(store.read(name))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        # Whatever is wrong with the file: without it the digests alone say what changed.
        return {}


def _parsed(data: bytes) -> Mapping[str, Kept]:
    """The vectors of a file.

    Raises:
        ValueError: it is no such file; likewise KeyError, TypeError, AttributeError for another header.
    """
    size = int.from_bytes(data[:8], "little")
    if size > len(data) - 8:
        raise ValueError("the header is longer than the file")
    header = json.loads(data[8 : 8 + size])
    body = memoryview(data)[8 + size :]
    nodes = [key.removesuffix("/projection") for key in header if key.endswith("/projection")]
    return {node: Kept(*(_vector(body, header[f"{node}/{part}"]) for part in _PARTS)) for node in nodes}


def _vector(body: memoryview, entry: Mapping[str, Any]) -> Sequence[float]:
    begin, end = entry["data_offsets"]
    if entry["dtype"] != "F32" or not 0 <= begin <= end <= len(body) or (end - begin) % 4:
        raise ValueError("a vector does not lie in the file")
    numbers = array("f")
    numbers.frombytes(body[begin:end])
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
