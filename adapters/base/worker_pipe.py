"""Frames over the worker's pipes with a deadline: nothing blocks longer, nothing is taken on trust."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import time
from collections.abc import Callable, Sequence
from typing import IO

_SLICE_SECONDS = 0.25
_CHUNK_BYTES = 2**20


class WorkerPipe:
    """Both pipes of one worker, non-blocking.

    Args:
        requests: the worker's standard input.
        answers: the worker's standard output.
        alive: whether the process still runs; asked while waiting, since a stray child may hold the pipe
            open.
    """

    def __init__(self, requests: IO[bytes], answers: IO[bytes], alive: Callable[[], bool]) -> None:
        self._requests, self._answers, self._alive = requests, answers, alive
        for stream in (requests, answers):
            os.set_blocking(stream.fileno(), False)
            # Linux only: fewer wake-ups for large tensors.
            with contextlib.suppress(OSError, AttributeError):
                fcntl.fcntl(stream.fileno(), fcntl.F_SETPIPE_SZ, _CHUNK_BYTES)

    def write(self, parts: Sequence[bytes | bytearray | memoryview], deadline: float) -> None:
        """Writes all parts.

        Raises:
            TimeoutError: `deadline` (of `time.monotonic`) has passed.
            BrokenPipeError: the worker closed its end or died.
        """
        descriptor = self._requests.fileno()
        for part in parts:
            view = memoryview(part)
            while view:
                self._wait(descriptor, select.POLLOUT, deadline)
                with contextlib.suppress(BlockingIOError):
                    view = view[os.write(descriptor, view[:_CHUNK_BYTES]) :]

    def read(self, size: int, deadline: float) -> bytearray:
        """Reads exactly `size` bytes; memory grows only as they arrive.

        Raises:
            TimeoutError: `deadline` has passed.
            EOFError: the worker closed its end or died.
        """
        descriptor = self._answers.fileno()
        data = bytearray()
        filled = 0
        while filled < size:
            if filled == len(data):
                data.extend(bytes(min(size - filled, max(_CHUNK_BYTES, filled))))
            try:
                self._wait(descriptor, select.POLLIN, deadline)
            except BrokenPipeError:
                raise EOFError from None
            with contextlib.suppress(BlockingIOError), memoryview(data) as view:
                count = os.readv(descriptor, [view[filled:]])
                if not count:
                    raise EOFError
                filled += count
        return data

    def close(self) -> None:
        """Closes both ends; the worker's guardian takes that as the end of the parent."""
        for stream in (self._requests, self._answers):
            with contextlib.suppress(OSError):
                stream.close()

    def _wait(self, descriptor: int, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(descriptor, event)
        while True:
            was_alive = self._alive()
            left = deadline - time.monotonic()
            ready = poll.poll(1000 * max(0.0, min(left, _SLICE_SECONDS)))
            if ready and ready[0][1] & event:
                return
            if ready or not was_alive:
                raise BrokenPipeError
            if left <= 0:
                raise TimeoutError
