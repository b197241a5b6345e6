"""The hash by which a source vouches for a file, and how it is computed."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from day0.adapters.base.source import SourceFile

_GIT_BLOB = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_READ = 2**22  # bytes at a time


@dataclass(frozen=True)
class Vouched:
    """What the source says the content is.

    Attributes:
        kind: `sha256`, or `git`: SHA-1 over git's blob header and the content, as the hub has it for files
            outside LFS.
        value: hex digits.
    """

    kind: str
    value: str


def vouched_hash(file: SourceFile) -> Vouched | None:
    """The hash that the source gives for a file; None where its identity is no hash of the content."""
    if file.sha256 is not None and _SHA256.fullmatch(file.sha256):
        return Vouched("sha256", file.sha256)
    if _GIT_BLOB.fullmatch(file.identity):
        return Vouched("git", file.identity)
    return None


def hasher(kind: str, size: int) -> Any:
    """A `hashlib` object of that kind, fed with all that precedes a content of `size` bytes."""
    if kind == "git":
        return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    return hashlib.sha256()


def hash_of(path: Path, kind: str) -> str:
    """The hash of a whole file, read once in pieces of 4 MiB."""
    with path.open("rb") as opened:
        state = hasher(kind, path.stat().st_size)
        buffer = memoryview(bytearray(_READ))
        while count := opened.readinto(buffer):
            state.update(buffer[:count])
    return str(state.hexdigest())
