"""Which bytes of a file are here: append-only journals, one a process, each line with its own checksum.

A line is written when its bytes have been handed to the system, so a killed process loses at most the piece
in flight. Every so often the data are forced to disk and the journal says so; after a power cut, on another
boot, only what stands before such a mark counts. The hash of the whole file has the last word.
"""

from __future__ import annotations

import os
import threading
import uuid
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from .ranges import Range, RangeSet
from .shared_files import open_shared

SYNC_BYTES = (
    64 * 2**20
)  # written between two forced writes; what a power cut costs at most per process and file
_PREFIX = "journal-"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass
class _Reader:
    """How far the journal of one process has been read.

    Attributes:
        offset: bytes read.
        trusted: whether the system that wrote it has run ever since.
        pending: ranges of an untrusted one that no mark has confirmed yet.
        confirmed: number of ranges that a mark has confirmed.
    """

    offset: int = 0
    trusted: bool = False
    pending: list[Range] = field(default_factory=list)
    confirmed: int = 0


class Journal:
    """The journals of one file of a release, of this process and of all others.

    Args:
        folder: where they lie.
        key: stands for the file's identity and size; lines written for another one do not count.
        size: of the file; ranges beyond it do not count.
    """

    def __init__(self, folder: Path, key: str, size: int) -> None:
        self._folder, self._key, self._size = folder, key, size
        self._held = RangeSet()
        self._readers: dict[str, _Reader] = {}
        self._own: tuple[str, int] | None = None
        self._unsynced = self._lines = 0
        self._lock = threading.Lock()
        self._boot = boot_id()

    def refresh(self) -> None:
        """Takes in what other processes have written since; starts anew where journals were discarded."""
        with self._lock:
            present = {name for name in os.listdir(self._folder) if name.startswith(_PREFIX)}
            known = set(self._readers) | ({self._own[0]} if self._own else set())
            if not known <= present:
                self._forget()
            for name in sorted(present - ({self._own[0]} if self._own else set())):
                self._read(name, self._readers.setdefault(name, _Reader()))

    def missing(self, start: int, stop: int) -> list[Range]:
        """What of a range is not here."""
        with self._lock:
            return self._held.missing(start, stop)

    @property
    def held(self) -> int:
        """Bytes that are here."""
        with self._lock:
            return self._held.total

    def add(self, start: int, stop: int, data: int) -> None:
        """Notes bytes that were written to the descriptor `data`, and forces them to disk when it is time."""
        with self._lock:
            self._append(f"{start} {stop}")
            self._lines += 1
            self._held.add(start, stop)
            self._unsynced += stop - start
            if self._unsynced < SYNC_BYTES:
                return
            self._unsynced = 0
        self.sync(data)

    def sync(self, data: int) -> None:
        """Forces data and journal to disk and marks the ranges noted so far as safe."""
        with self._lock:
            own, lines = self._own, self._lines
        os.fdatasync(data)
        with self._lock:
            if self._own is None or self._own != own:  # discarded meanwhile
                return
            self._append(f"synced {lines}")
            os.fdatasync(self._own[1])

    def discard(self) -> None:
        """Removes all journals: nothing of the file is here."""
        with self._lock:
            self._forget()
            for name in os.listdir(self._folder):
                if name.startswith(_PREFIX):
                    (self._folder / name).unlink(missing_ok=True)

    def close(self) -> None:
        """Closes this process's own journal."""
        with self._lock:
            self._close()

    def _forget(self) -> None:
        self._close()
        self._held, self._readers, self._unsynced = RangeSet(), {}, 0

    def _close(self) -> None:
        if self._own is not None:
            os.close(self._own[1])
            self._readers[self._own[0]] = _Reader()  # read again from its start when it is asked for
            self._own, self._lines = None, 0

    def _append(self, text: str) -> None:
        if self._own is None:
            name = f"{_PREFIX}{uuid.uuid4().hex}"
            place = self._folder / name
            self._own = name, open_shared(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_EXCL)
            os.write(self._own[1], self._line(f"boot {self._boot}"))
        os.write(self._own[1], self._line(text))

    def _line(self, text: str) -> bytes:
        return f"{text} {zlib.crc32(f'{self._key} {text}'.encode()):08x}\n".encode()

    def _read(self, name: str, reader: _Reader) -> None:
        try:
            with (self._folder / name).open("rb") as file:
                file.seek(reader.offset)
                text = file.read()
        except OSError:  # of another person, or just discarded: then its bytes are fetched again
            return
        whole = text[: text.rfind(b"\n") + 1]
        reader.offset += len(whole)
        for line in whole.splitlines():
            self._take(line.decode("ascii", "replace"), reader)

    def _take(self, line: str, reader: _Reader) -> None:
        text, _, _ = line.rpartition(" ")
        if self._line(text) != line.encode() + b"\n":
            return
        word, _, rest = text.partition(" ")
        if word == "boot":
            reader.trusted = bool(rest) and rest == self._boot
        elif word == "synced" and rest.isdigit():
            safe = max(0, int(rest) - reader.confirmed)
            for start, stop in reader.pending[:safe]:
                self._held.add(start, stop)
            del reader.pending[:safe]
            reader.confirmed = max(reader.confirmed, int(rest))
        elif word.isdigit() and rest.isdigit() and int(word) < int(rest) <= self._size:
            if reader.trusted:
                self._held.add(int(word), int(rest))
            else:
                reader.pending.append((int(word), int(rest)))


def boot_id() -> str:
    """Names this boot of this machine; empty where the system does not tell."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
