"""What a source of files must do. A vendor plugs one in through the entry point group `day0.sources`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from .values import Anomaly, Value


class SourceFile(Value):
    """One file of a release.

    Attributes:
        path: relative, with forward slashes, inside the release.
        size: bytes.
        identity: changes whenever the content may have changed: a content hash where the source has one
            (hub: blob or LFS sha256), else size, inode and mtime in ns (local folder).
        sha256: of the content where the source knows it.
    """

    path: str
    size: int
    identity: str
    sha256: str | None = None


@runtime_checkable
class MovingSource(Protocol):
    """A source that can tell whether what it was opened by has changed since; a source need not."""

    def moved(self) -> Anomaly | None:
        """What has moved, of code `revision_moved`; None for nothing, or where it cannot be found out.

        Costs at most one request and never fails.
        """
        ...


class Source(Protocol):
    """Where a release's files come from, pinned to one revision.

    Attributes:
        name: hub id, absolute folder or URL; as a person would name the model.
        revision: the pinned commit; for a folder a digest over the files' identities.
        anomalies: what the listing leaves out, and why.
    """

    name: str
    revision: str
    anomalies: Sequence[Anomaly]

    def files(self) -> Sequence[SourceFile]:
        """All files, sorted by path. Symlinks that leave the release are left out.

        Raises:
            SourceError: the listing cannot be had.
        """
        ...

    def read(self, path: str, start: int = 0, stop: int | None = None) -> bytes:
        """Bytes `start` to `stop` (exclusive) of one file, never more than that over the wire.

        Raises:
            SourceError: the file is missing, shorter than `start`, or unreachable after retries.
        """
        ...

    def local_path(self, path: str) -> Path:
        """The file on this machine, fetched into the cache first where it is remote.

        Raises:
            SourceError: it cannot be fetched.
        """
        ...
