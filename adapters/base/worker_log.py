"""What a worker writes to standard error: to a file, and its last lines in memory, both bounded."""

from __future__ import annotations

import os
import threading
from collections import deque
from pathlib import Path
from typing import IO

_LINES = 200
_LINE_BYTES = 2000
_FILE_BYTES = 64 * 2**20


class WorkerLog:
    """Drains one stream in a thread of its own until it ends.

    Args:
        stream: the worker's standard error.
        path: file that is appended to, at most 64 MiB of it; None keeps the tail only.
    """

    def __init__(self, stream: IO[bytes], path: Path | None) -> None:
        self._tail: deque[str] = deque(maxlen=_LINES)
        self._stream = stream
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path or os.devnull, "ab", buffering=0)  # noqa: SIM115  # the thread closes it
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        self._thread = threading.Thread(target=self._drain, name="day0-worker-log", daemon=True)
        self._thread.start()

    def tail(self, lines: int = 20) -> list[str]:
        """The last lines, oldest first."""
        return list(self._tail)[-lines:]

    def finish(self, seconds: float = 2.0) -> None:
        """Waits for the stream's end, at most so long: a process that escaped may hold it open."""
        self._thread.join(seconds)

    def _drain(self) -> None:
        room = _FILE_BYTES
        rest = b""
        with self._file as file, self._stream as stream:
            while piece := os.read(stream.fileno(), 2**16):
                file.write(piece[:room])
                room -= len(piece[:room])
                *lines, rest = (rest + piece).split(b"\n")
                if len(rest) > _LINE_BYTES:
                    lines, rest = [*lines, rest], b""
                self._tail.extend(_text(line) for line in lines if line.strip())
            if rest.strip():
                self._tail.append(_text(rest))


def _text(line: bytes) -> str:
    return line[:_LINE_BYTES].decode("utf-8", errors="replace").rstrip()
