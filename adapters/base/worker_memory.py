"""Watches the memory of a worker's process tree: proportional set size, so that shared pages count once."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import psutil

_SECONDS_BETWEEN_LOOKS = 0.1
_SHARE_OF_TIME = 0.02
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0


class MemoryWatch:
    """Looks every tenth of a second, and less often where a look takes long (at most 2 % of the time).

    The resident size, which is quickly told and never less, is asked first: the kernel walks all pages of a
    process to tell its proportional share, a tenth of a second for some gigabytes, and stops it meanwhile.

    Args:
        pid: root of the tree.
        limit: bytes; 0 for none.
        on_excess: called once, from the watching thread, when the tree takes more than `limit`.

    Attributes:
        peak: highest bytes seen.
        exceeded: whether the limit was passed.
    """

    def __init__(self, pid: int, limit: int, on_excess: Callable[[], None]) -> None:
        self.peak = 0
        self.exceeded = False
        self._pid, self._limit, self._on_excess = pid, limit, on_excess
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="day0-worker-memory", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the watch."""
        self._stop.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _watch(self) -> None:
        pause = 0.0
        while not self._stop.wait(pause):
            began = time.monotonic()
            if tree_bytes(self._pid, _resident_bytes) > self.peak:
                self.peak = max(self.peak, tree_bytes(self._pid))
            if self._limit and self.peak > self._limit:
                self.exceeded = True
                self._on_excess()
                return
            pause = max(_SECONDS_BETWEEN_LOOKS, (time.monotonic() - began) / _SHARE_OF_TIME)


def _resident_bytes(process: psutil.Process) -> int:
    """Resident size of one process, shared pages whole."""
    try:
        with open(f"/proc/{process.pid}/statm", encoding="ascii") as sizes:
            return int(sizes.read().split()[1]) * _PAGE
    except OSError:
        pass
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _process_bytes(process: psutil.Process) -> int:
    try:
        with open(f"/proc/{process.pid}/smaps_rollup", encoding="ascii") as rollup:
            for line in rollup:
                if line.startswith("Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def tree_bytes(pid: int, of: Callable[[psutil.Process], int] = _process_bytes) -> int:
    """Memory of a process and all below it, in bytes; what has ended meanwhile counts nothing.

    Args:
        pid: of the process.
        of: tells the bytes of one process.
    """
    try:
        root = psutil.Process(pid)
        processes = [root, *root.children(recursive=True)]
    except psutil.Error:
        return 0
    return sum(map(of, processes))
