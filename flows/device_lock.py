"""One target job at a time per device of this machine, whoever runs it: threads, processes, other runs."""

from __future__ import annotations

import fcntl
import logging
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_LOGGER = logging.getLogger("day0.device")
_SAY_EVERY = 30.0
"""Seconds between two lines of somebody who waits."""
_held_here: set[str] = set()


@contextmanager
def device(name: str) -> Iterator[None]:
    """Holds a device for the block; waits while another job has it, and says for whom and how long.

    The kernel gives the lock back when its holder dies, however it dies.

    Args:
        name: torch device type, e.g. `cpu`.
    """
    folder = Path(tempfile.gettempdir()) / f"day0-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    with open(folder / f"device-{name}.lock", "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _wait(file, name)
        _sign(file)
        _held_here.add(name)
        try:
            yield
        finally:
            _held_here.discard(name)


def _wait(file: IO[str], name: str) -> None:
    if name in _held_here:  # this run's own targets take turns without a word
        fcntl.flock(file, fcntl.LOCK_EX)
        return
    got, began = threading.Event(), time.monotonic()

    def say() -> None:
        while True:
            waited = time.monotonic() - began
            since = f", for {waited:.0f} s now" if waited >= 1 else ""
            _LOGGER.info("waiting for %s, which %s holds%s", name, _holder(file), since)
            if got.wait(_SAY_EVERY):
                return

    teller = threading.Thread(target=say, name="day0-device", daemon=True)
    teller.start()
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    finally:
        got.set()
        teller.join()


def _sign(file: IO[str]) -> None:
    """Who holds it, for those who wait."""
    file.seek(0)
    file.truncate()
    file.write(str(os.getpid()))
    file.flush()


def _holder(file: IO[str]) -> str:
    process = os.pread(file.fileno(), 20, 0).decode(errors="replace")
    return f"another run (process {process})" if process.isdigit() else "another run"
