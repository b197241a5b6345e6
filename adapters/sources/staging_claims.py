"""Who fetches which part of a file: so that two processes share the work instead of doing it twice.

Locks of the open file description where the file system is local and keeps them; lease files elsewhere,
because network file systems may grant the same lock twice. A claim only saves work: two holders of the same
one would write the same bytes to the same place.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from .shared_files import open_shared
from .staging_journal import boot_id

LEASE_SECONDS = 60.0  # without a sign of life, after which another process may take a lease over
_BEAT_SECONDS = 10.0
_LOCK_FORM = "hhqqi4x"  # struct flock of 64-bit Linux: type, whence, start, length, pid


@dataclass
class Claim:
    """A unit that nobody else works on.

    Attributes:
        release: gives it back.
        beat: a sign of life, to be given between pieces.
    """

    release: Callable[[], None]
    beat: Callable[[], None] = field(default=lambda: None)


class Claims(Protocol):
    """Hands out the units of one file."""

    def take(self, unit: int) -> Claim | None:
        """The claim to a unit; None where somebody else, or another thread, holds it."""
        ...


class LockClaims:
    """One byte of a lock file for each unit; the system releases it when its holder dies.

    Args:
        folder: of the file's parts.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "locks"

    def take(self, unit: int) -> Claim | None:
        """See `Claims`."""
        handle = open_shared(self._path, os.O_RDWR | os.O_CREAT)
        if not lock_byte(handle, unit):
            os.close(handle)
            return None
        return Claim(release=lambda: os.close(handle))


class LeaseClaims:
    """One file for each unit, made only where there is none; a dead holder's is taken over.

    Args:
        folder: of the file's parts.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._me = f"{socket.gethostname()} {boot_id()}"

    def take(self, unit: int) -> Claim | None:
        """See `Claims`."""
        path = self._folder / f"lease-{unit}"
        for _ in range(2):
            try:
                handle = open_shared(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            except FileExistsError:
                if not self._is_dead(path):
                    return None
                self._set_aside(path)
                continue
            os.write(handle, f"{self._me}\n{os.getpid()}".encode())
            os.close(handle)
            return Claim(lambda: path.unlink(missing_ok=True), self._beater(path))
        return None

    def _beater(self, path: Path) -> Callable[[], None]:
        last = time.monotonic()

        def beat() -> None:
            nonlocal last
            if time.monotonic() - last >= _BEAT_SECONDS:
                last = time.monotonic()
                try:
                    os.utime(path)
                except FileNotFoundError:  # taken over: both now write the same bytes
                    return

        return beat

    def _is_dead(self, path: Path) -> bool:
        try:
            host, _, process = path.read_text(encoding="utf-8", errors="replace").partition("\n")
            age = self._clock() - path.stat().st_mtime
        except FileNotFoundError:
            return False
        if age > LEASE_SECONDS:
            return True
        return host == self._me and process.isdigit() and not _lives(int(process))

    def _clock(self) -> float:
        """The time by the clock of the machine that keeps the files."""
        mark = self._folder / f"clock-{uuid.uuid4().hex}"
        mark.touch()
        try:
            return mark.stat().st_mtime
        finally:
            mark.unlink()

    def _set_aside(self, path: Path) -> None:
        aside = path.with_name(f"dead-{uuid.uuid4().hex}")
        try:
            path.rename(aside)  # of several that try, one succeeds
        except FileNotFoundError:
            return
        aside.unlink(missing_ok=True)


def lock_byte(handle: int, place: int) -> bool:
    """Locks one byte for the open file description; False where another one has it.

    Raises:
        OSError: the file system keeps no locks.
    """
    wanted = struct.pack(_LOCK_FORM, fcntl.F_WRLCK, os.SEEK_SET, place, 1, 0)
    try:
        fcntl.fcntl(handle, fcntl.F_OFD_SETLK, wanted)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
