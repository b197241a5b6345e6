"""Tensor files beside the canonical set whose names do not tell what they are: their headers do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from day0.adapters.base.values import Anomaly
from day0.adapters.checkpoints.shard_headers import read_headers

from .seen import Seen

MAX_FILES = 32  # a release has one or two; more are named and left unread


@dataclass(frozen=True)
class ExtraFile:
    """One such file.

    Attributes:
        path: of it.
        tensors: that it holds.
        bytes: of them.
        example: the first.
        disjoint: whether none of them bears the name of one of the canonical set.
    """

    path: str
    tensors: int
    bytes: int
    example: str
    disjoint: bool


def read_extra(seen: Seen, paths: Sequence[str]) -> Mapping[str, ExtraFile]:
    """Reads the headers of these files; those that cannot be used are left out.

    Raises:
        InputError: the source refuses or cannot be reached.
    """
    source = seen.release.source
    if source is None or not paths:
        return {}
    sizes = {file.path: file.size for file in source.files()}
    canonical = seen.release.checkpoint.tensors
    found = {}
    for path, header in read_headers(source, list(paths)[:MAX_FILES], sizes).items():
        if isinstance(header, Anomaly) or not header.names:
            continue
        found[path] = ExtraFile(
            path=path,
            tensors=len(header.names),
            bytes=sum(kind.bytes for kind in header.kinds),
            example=header.names[0],
            disjoint=not any(name in canonical for name in header.names),
        )
    return found
