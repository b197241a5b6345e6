"""Tensors that lie in more than one file: whether the copies are the same, and what loaders make of them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence

from day0.adapters.base.checkpoint import TensorFault
from day0.adapters.base.errors import Day0Error
from day0.adapters.base.source import Source
from day0.adapters.sources.local import LocalSource

from .folding import group_names
from .seen import Seen

MAX_COMPARED = 64 * 2**20  # bytes of one copy; reading them takes a twentieth of a second
MAX_READ = 512 * 2**20  # bytes in all
_LOADERS = "transformers, vLLM and SGLang keep the copy that they read last, fastsafetensors refuses"


def compare_duplicates(seen: Seen, faults: Sequence[TensorFault]) -> Mapping[str, str]:
    """Pattern -> whether the copies of its tensors are alike, and what loaders do.

    Args:
        seen: everything.
        faults: the duplicates, one for each copy.
    """
    copies: dict[str, list[TensorFault]] = {}
    for fault in faults:
        copies.setdefault(fault.name, []).append(fault)
    left = MAX_READ
    results: Counter[str] = Counter()
    for held in copies.values():
        result, read = compare_copies(seen.release.source, held, left)
        left -= read
        results[result] += 1
    said = ", ".join(f"{number} {result}" for result, number in sorted(results.items()))
    told = f"the copies {next(iter(results))}" if len(results) == 1 else f"of all copies {said}"
    return {group.pattern.text: f"{told}; {_LOADERS}" for group in group_names(copies)}


def compare_copies(source: Source | None, copies: Sequence[TensorFault], left: int) -> tuple[str, int]:
    """What is known of the copies, and the bytes that were read to find out.

    Args:
        source: of the release; only a folder's bytes are read.
        copies: of one tensor.
        left: bytes that may still be read.
    """
    kinds = {copy.kind for copy in copies}
    if len(kinds) > 1:
        return "have different dtypes or shapes", 0
    kind = copies[0].kind
    if kind is None or not is_local(source) or kind.bytes > MAX_COMPARED or kind.bytes * len(copies) > left:
        return "have the same dtype and shape, their bytes were not compared", 0
    digests = {digest_of(source, copy.file, copy.start, kind.bytes) for copy in copies}
    if "" in digests:
        return "have the same dtype and shape, their bytes cannot be read", 0
    same = "are identical" if len(digests) == 1 else "have the same dtype and shape and different bytes"
    return same, kind.bytes * len(copies)


def is_local(source: Source | None) -> bool:
    """Whether bytes can be read without fetching any."""
    return isinstance(source, LocalSource)


def digest_of(source: Source | None, file: str, start: int, length: int) -> str:
    """Hash of a stretch of a file; empty where it cannot be read or the file ends before it does."""
    try:
        data = source.read(file, start, start + length) if source is not None else b""
    except Day0Error:
        return ""
    return hashlib.sha256(data).hexdigest() if len(data) == length else ""
