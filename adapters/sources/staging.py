"""Brings weights to this machine by ranges: in a given order, resumable, verified, shared between processes.

Memory: at most STREAMS chunks of what the source's stream yields at a time, plus 4 MiB a file being hashed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from day0.adapters.base.errors import SourceError
from day0.adapters.base.progress import Progress, silent
from day0.adapters.base.source import Source, SourceFile

from .ranges import Range
from .staging_file import Stream
from .staging_parts import Parts
from .staging_place import StagingPlace
from .staging_work import STREAMS, StagingWork, inside
from .staging_work import Staged as Staged
from .staging_work import Wanted as Wanted

UNIT = 128 * 2**20  # bytes of one request: few enough requests for the hub's limits (R1's 641 GiB are 5,200)
_TRIES = 3


class Stager:
    """Stages the files of one release.

    Args:
        name: of the release, for messages.
        files: of the pinned listing; no other path is ever staged.
        place: where they belong.
        stream: gives ranges of a file, retrying by itself.
        unit: bytes of one request at most.
    """

    def __init__(
        self, name: str, files: Iterable[SourceFile], place: StagingPlace, stream: Stream, *, unit: int = UNIT
    ) -> None:
        self._parts = Parts(name, files, place, stream)
        self._unit = unit
        self._slots = threading.BoundedSemaphore(STREAMS)

    @property
    def folder(self) -> Path:
        """Where the release's files stand by their names."""
        return self._parts.place.folder / "snapshots" / self._parts.place.revision

    def whole(self, path: str) -> Path | None:
        """The file, where it is here completely."""
        return self._parts.whole(path)

    def ensure(self, path: str, ranges: Sequence[Range] | None = None) -> Path:
        """A file on this machine in which these ranges, or all bytes, are those of the release.

        A file that is not whole has holes elsewhere and is not yet verified: hashes are of whole files. The
        name stays good when the file becomes whole, where the file system has links.

        Raises:
            SourceError: E201 no such file, E210 no space, E211 wrong hash twice, E212 the folder cannot be
                written, E213 the source is shorter than it listed; what the stream raises.
        """
        here = self.whole(path)
        if here is not None:
            return here
        for _ in range(_TRIES):
            part = self._parts.part(path)
            if ranges is not None and part.holds(inside(ranges, part.file.size)):
                return part.data
            self.stage([Wanted(path, ranges)])
            here = self.whole(path)
            if here is not None:
                return here
            if ranges is not None and part.holds(inside(ranges, part.file.size)):
                return part.data
        raise SourceError(
            f"file {path} of {self._parts.name} was discarded {_TRIES} times by other processes as it came",
            code="E211",
            remedy="Its content is wrong wherever it comes from; use another mirror.",
        )

    def check_room(self, wanted: Sequence[Wanted]) -> None:
        """Whether all that is missing fits on the disk.

        Raises:
            SourceError: E210, it does not.
        """
        StagingWork(self._parts, wanted, unit=self._unit, slots=self._slots)

    def stage(self, wanted: Sequence[Wanted], progress: Progress = silent) -> Staged:
        """Fetches what is not here yet, in the given order; whole files are verified and moved into place.

        Args:
            wanted: files and ranges; all that is missing must fit on the disk before anything is fetched.
            progress: told megabytes.

        Raises:
            SourceError: see `ensure`.
        """
        work = StagingWork(self._parts, wanted, unit=self._unit, slots=self._slots, progress=progress)
        return work.run()


def stager_of(source: Source | None) -> Stager | None:
    """The stager of a remote source; None where the files are here, or the source stages by itself."""
    stager = getattr(source, "stager", None)
    return stager if isinstance(stager, Stager) else None


def stage_files(source: Source, wanted: Sequence[Wanted], progress: Progress = silent) -> Staged:
    """Stages files of any source; one without a stager gives whole files its own way.

    Raises:
        SourceError: see `Stager.ensure`.
    """
    stager = stager_of(source)
    if stager is not None:
        return stager.stage(wanted, progress)
    sizes: Mapping[str, int] = {file.path: file.size for file in source.files()}
    paths = list(dict.fromkeys(item.path for item in wanted))
    began = time.monotonic()
    for done, path in enumerate(paths):
        progress(f"staging {source.name} (files)", done, len(paths), path)
        source.local_path(path)
    return Staged(len(paths), sum(sizes[path] for path in paths), 0, time.monotonic() - began)


def local_part(source: Source, path: str, start: int, stop: int) -> Path:
    """A file on this machine in which those bytes are the release's; the rest may be holes.

    Raises:
        SourceError: see `Stager.ensure`.
    """
    stager = stager_of(source)
    return source.local_path(path) if stager is None else stager.ensure(path, [(start, stop)])


def read_part(source: Source, path: str, start: int, stop: int) -> bytes:
    """Bytes of a file, which of a remote one stay on this machine.

    Raises:
        SourceError: see `Stager.ensure`; E202, the file is shorter than `start`.
    """
    stager = stager_of(source)
    if stager is None:
        return source.read(path, start, stop)
    with stager.ensure(path, [(start, stop)]).open("rb") as file:
        file.seek(start)
        return file.read(stop - start)
