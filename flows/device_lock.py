"""One target job at a time per device of this machine, whoever runs it: threads, processes, other runs."""

from __future__ import annotations

import fcntl
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LOGGER = logging.getLogger("day0.device")
_held_here: set[str] = set()


@contextmanager
def device(name: str) -> Iterator[None]:
    """Holds a device for the block; waits while another job has it.

    The kernel gives the lock back when its holder dies, however it dies.

    Args:
        name: torch device type, e.g. `cpu`.
    """
    folder = Path(tempfile.gettempdir()) / f"day0-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    with open(folder / f"device-{name}.lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if name not in _held_here:  # this run's own targets take turns without a word
                _LOGGER.info("waiting for %s, which another run holds", name)
            fcntl.flock(file, fcntl.LOCK_EX)
        _held_here.add(name)
        try:
            yield
        finally:
            _held_here.discard(name)
