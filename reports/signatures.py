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
from dataclasses import dataclass, field
from typing import Any

from day0.adapters.base.run_store import RunStore
from day0.tasks.numerics.record import NumericsRecord

FILE = "signatures"
"""Name of the side file in the record."""
_PARTS = ("projection", "norms")
_TOKENS = "tokens"


@dataclass(frozen=True)
class Kept:
    """A signature as numbers: projection onto the directions, norm of each token."""

    projection: Sequence[float]
    norms: Sequence[float]


@dataclass(frozen=True)
class Moves:
    """What the signatures of two runs say.

    Attributes:
        by_node: node -> how far its output moved, an estimate of relative L2; infinite for another shape.
        alike: how many tokens at the start are the same in both runs, where not all are; these alone count.
    """

    by_node: Mapping[str, float] = field(default_factory=dict)
    alike: int | None = None


def moves(store: RunStore, before: NumericsRecord, after: NumericsRecord) -> Moves:
    """How far each node's output moved; nothing where a run left no signatures.

    Of runs that went over other tokens (the reference's own continuation is part of the prompt, and changes
    with the weights) only the norms of those tokens count that come before the first other one: what stands
    later cannot be compared, and what comes before does not see it.
    """
    (old_ids, earlier), (new_ids, later) = (
        _read(store, record.files.get(FILE, "")) for record in (before, after)
    )
    alike = (
        None if list(old_ids) == list(new_ids) or not old_ids or not new_ids else _common(old_ids, new_ids)
    )
    found = {name: moved(earlier[name], later[name], alike) for name in earlier if name in later}
    return Moves(found, alike)


def moved(before: Kept, after: Kept, alike: int | None = None) -> float:
    """The same as `day0.tasks.numerics.measures.signatures.moved`, on plain numbers.

    Args:
        before: an output.
        after: another.
        alike: tokens at the start whose norms are all that is compared; None: everything.
    """
    if alike is not None:
        return _apart(before.norms[:alike], after.norms[:alike], math.hypot(*before.norms[:alike]))
    if len(before.norms) != len(after.norms) or len(before.projection) != len(after.projection):
        return math.inf
    scale = math.hypot(*before.norms) * math.sqrt(max(1, len(before.projection)))
    return _apart(before.projection, after.projection, scale)


def _apart(before: Sequence[float], after: Sequence[float], scale: float) -> float:
    apart = math.hypot(*(new - old for old, new in zip(before, after, strict=False)))
    if scale > 0:
        return apart / scale
    return math.inf if apart > 0 else 0.0


def _common(before: Sequence[float], after: Sequence[float]) -> int:
    pairs = zip(before, after, strict=False)
    return next((place for place, (old, new) in enumerate(pairs) if old != new), min(len(before), len(after)))


def _read(store: RunStore, name: str) -> tuple[Sequence[float], Mapping[str, Kept]]:
    """Token ids and the signatures of a run, by node; empty where the file is gone or damaged."""
    if not name or not store.exists(name):
        return (), {}
    try:
        return _parsed(store.read(name))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        # Whatever is wrong with the file: without it the digests alone say what changed.
        return (), {}


def _parsed(data: bytes) -> tuple[Sequence[float], Mapping[str, Kept]]:
    """Token ids, which older files lack, and the vectors of a file.

    Raises:
        ValueError: it is no such file; likewise KeyError, TypeError, AttributeError for another header.
    """
    size = int.from_bytes(data[:8], "little")
    if size > len(data) - 8:
        raise ValueError("the header is longer than the file")
    header = json.loads(data[8 : 8 + size])
    body = memoryview(data)[8 + size :]
    nodes = [key.removesuffix("/projection") for key in header if key.endswith("/projection")]
    ids = _vector(body, header[_TOKENS]) if _TOKENS in header else ()
    return ids, {node: Kept(*(_vector(body, header[f"{node}/{part}"]) for part in _PARTS)) for node in nodes}


def _vector(body: memoryview, entry: Mapping[str, Any]) -> Sequence[float]:
    begin, end = entry["data_offsets"]
    if entry["dtype"] != "F32" or not 0 <= begin <= end <= len(body) or (end - begin) % 4:
        raise ValueError("a vector does not lie in the file")
    numbers = array("f")
    numbers.frombytes(body[begin:end])
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
