"""One file on its way from a source to this machine."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from day0.adapters.base.errors import SourceError
from day0.adapters.base.source import SourceFile
from day0.adapters.base.values import digest

from .content_hash import hash_of, hasher, vouched_hash
from .ranges import Range
from .shared_files import make_shared, open_shared
from .staging_claims import Claim, Claims, LeaseClaims, LockClaims
from .staging_journal import Journal
from .staging_place import StagingPlace
from .staging_probe import free_bytes, probe_folder, unusable

PIECE = 2**18  # bytes after which the journal is told; what a kill costs at most per stream, beside buffers
LANDING = 2**40  # number of the unit that stands for hashing and moving into place
Stream = Callable[[str, int, int], Iterator[bytes]]
"""Path, first byte and the one after the last -> the bytes, in pieces; it retries by itself."""


class WrongContentError(Exception):
    """All bytes have come and are not those that the source vouches for; the argument is the hash met."""


class PartFile:
    """A file that may be here in part.

    Args:
        file: of the source's listing.
        place: where it belongs.
        stream: gives ranges of it.
        name: of the release, for messages.

    Raises:
        SourceError: E212, nothing can be written there.
    """

    def __init__(self, file: SourceFile, place: StagingPlace, stream: Stream, name: str) -> None:
        self.file = file
        self._place, self._stream, self._name = place, stream, name
        self.folder = place.parts(file)
        self.data = self.folder / "data"
        locks = probe_folder(place.folder).locks
        try:
            make_shared(self.folder, place.folder)
            self.journal = Journal(self.folder, digest([file.identity, file.size]), file.size)
            self.journal.refresh()
            stale = self.data.is_symlink() and self.whole is None  # its blob was removed or damaged
            if stale or not self.data.exists():
                self.journal.discard()
                self.data.unlink(missing_ok=True)
        except OSError as error:
            raise unusable(self.folder, error) from error
        self._claims: Claims = LockClaims(self.folder) if locks else LeaseClaims(self.folder)

    @property
    def whole(self) -> Path | None:
        """The file in its place, once it is verified and there."""
        return self._place.whole(self.file)

    @property
    def complete(self) -> bool:
        """Whether all its bytes have come."""
        return not self.journal.missing(0, self.file.size)

    def holds(self, ranges: Sequence[Range]) -> bool:
        """Whether these bytes have come, as far as this process knows, and were not discarded."""
        return self.data.exists() and not any(self.journal.missing(*one) for one in ranges)

    def take(self, unit: int) -> Claim | None:
        """The claim to a unit of the file; None where somebody else works on it."""
        try:
            return self._claims.take(unit)
        except OSError as error:
            raise unusable(self.folder, error) from error

    def fetch(
        self,
        wanted: Range,
        claim: Claim,
        arrived: Callable[[int], None],
        stop: Callable[[], bool],
        *,
        plain: bool = False,
    ) -> None:
        """Fetches what of a range is not here yet; leaves off between pieces when `stop` says so.

        With `plain` the range is read from its first byte on, whatever of it is here: from a source without
        ranges nothing else can be had, so that a broken stream begins anew.

        Raises:
            SourceError: E210 the disk is full, E212 the folder cannot be written, E213 the source gave fewer
                bytes than it listed; what the stream raises.
        """
        self.journal.refresh()
        gaps = self.journal.missing(*wanted)
        if not gaps or self.whole is not None:
            return
        if plain:
            gaps = [wanted]
        try:
            handle = open_shared(self.data, os.O_RDWR | os.O_CREAT)
            try:
                if os.fstat(handle).st_size != self.file.size:
                    os.ftruncate(handle, self.file.size)
                for gap in gaps:
                    self._fill(handle, gap, claim, arrived, stop)
            finally:
                os.close(handle)
        except OSError as error:
            raise self._cannot_write(error) from error

    def land(self) -> Path:
        """Verifies the complete file and moves it into its place.

        Raises:
            WrongContentError: it is not what the source vouches for; nothing of it counts any more.
            SourceError: E210, E212.
        """
        try:
            vouched = vouched_hash(self.file)
            self._force()
            if vouched is not None:
                met = hash_of(self.data, vouched.kind)
                if met != vouched.value:
                    self._reject()
                    raise WrongContentError(met)
            path = self._place.settle(self.file, self.data)
            (self.folder / "rejected").unlink(missing_ok=True)
            self.journal.discard()
        except OSError as error:
            raise self._cannot_write(error) from error
        return path

    def fetch_small(self) -> Path:
        """Fetches a small file as a whole, through memory.

        Raises:
            WrongContentError: it is not what the source vouches for.
            SourceError: E210, E212, E213; what the stream raises.
        """
        data = b"".join(self._stream(self.file.path, 0, self.file.size)) if self.file.size else b""
        if len(data) != self.file.size:
            raise self._cut_short(len(data))
        vouched = vouched_hash(self.file)
        if vouched is not None:
            state = hasher(vouched.kind, len(data))
            state.update(data)
            if state.hexdigest() != vouched.value:
                raise WrongContentError(state.hexdigest())
        try:
            made = self.folder / f"small-{uuid.uuid4().hex}"
            handle = open_shared(made, os.O_WRONLY | os.O_CREAT)
            try:
                _write(handle, data, 0)
            finally:
                os.close(handle)
            os.replace(made, self.data)
            return self._place.settle(self.file, self.data)
        except OSError as error:
            raise self._cannot_write(error) from error

    def _fill(
        self, handle: int, gap: Range, claim: Claim, arrived: Callable[[int], None], stop: Callable[[], bool]
    ) -> None:
        noted = position = gap[0]
        try:
            for data in self._stream(self.file.path, *gap):
                position += _write(handle, data[: gap[1] - position], position)
                if position - noted >= PIECE:
                    self.journal.add(noted, position, handle)
                    arrived(position - noted)
                    noted = position
                    claim.beat()
                    if stop():
                        return
                if position == gap[1]:
                    break
        finally:
            if position > noted:
                self.journal.add(noted, position, handle)
                arrived(position - noted)
        if position < gap[1]:
            raise self._cut_short(position)

    def _force(self) -> None:
        handle = os.open(self.data, os.O_RDWR)
        try:
            os.fdatasync(handle)
        finally:
            os.close(handle)

    def _reject(self) -> None:
        os.replace(self.data, self.folder / "rejected")
        self.journal.discard()

    def _cut_short(self, position: int) -> SourceError:
        return SourceError(
            f"file {self.file.path} of {self._name} has {self.file.size} bytes in the listing, the source "
            f"ends at byte {position}",
            code="E213",
            remedy="The release may be changing: run again to pin it anew.",
        )

    def _cannot_write(self, error: OSError) -> SourceError:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return SourceError(
                f"the disk is full: {free_bytes(self.folder)} bytes are free in {self.folder} while "
                f"{self.file.path} ({self.file.size} bytes) is fetched",
                code="E210",
                remedy="Free some space and run again: what has come is kept.",
            )
        return unusable(self.folder, error)


def _write(handle: int, data: bytes, position: int) -> int:
    view, written = memoryview(data), 0
    while written < len(view):
        written += os.pwrite(handle, view[written:], position + written)
    return len(view)
