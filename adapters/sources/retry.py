"""When to ask again: bounded tries, the server's own hints, and one gate for all threads that ask a host."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from .http_failure import HttpFailure

MAX_TRIES = 5  # failures in a row, without a byte of progress between them
FIRST_WAIT = 0.5  # seconds; doubles with every failure in a row
MAX_WAIT = 305.0  # seconds; the hub counts requests in windows of five minutes; more is reported instead
MAX_TOTAL_WAIT = 610.0  # seconds that one read may spend waiting
PROGRESS = 2**20  # bytes after which a cut connection counts as progress and not as another failure
now = time.monotonic
pause = time.sleep
_LOGGER = logging.getLogger(__name__)
_jitter = random.Random()

Result = TypeVar("Result")


class Gate:
    """Keeps all threads from a host that has asked for silence."""

    def __init__(self) -> None:
        self._until = 0.0
        self._lock = threading.Lock()

    def close(self, seconds: float) -> None:
        """Nobody asks for that long; a longer silence that is on already stays."""
        with self._lock:
            self._until = max(self._until, now() + seconds)

    def wait(self) -> None:
        """Returns when the host may be asked, not at the very moment when all others do."""
        for _ in range(MAX_TRIES):  # it may have been closed again meanwhile
            left = self._until - now()
            if left <= 0:
                return
            pause(left + _jitter.uniform(0, min(0.5, left / 10)))


_GATES: dict[str, Gate] = {}
_LOCK = threading.Lock()


def gate_of(host: str) -> Gate:
    """The one gate before a host."""
    with _LOCK:
        return _GATES.setdefault(host, Gate())


class Tries:
    """Counts the failures of one read.

    Args:
        what: named in the log.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._row = 0
        self._waited = 0.0
        self._dropped = False

    def progress(self, taken: int) -> None:
        """Bytes that came; enough of them make good for earlier failures."""
        if taken >= PROGRESS:
            self._row = 0

    def again(self, failure: HttpFailure, taken: int = 0) -> None:
        """Returns when the next try is due.

        Args:
            failure: what happened.
            taken: bytes that had come before it did.

        Raises:
            HttpFailure: the given one, where another try cannot help or enough were made.
        """
        if failure.dropped and not self._dropped:  # the server's right, and no sign of trouble
            self._dropped = True
            return
        self.progress(taken)
        self._row += 1
        wait = self._wait(failure)
        if wait is None:
            raise failure
        _LOGGER.info(
            "%s: %s; again in %.1f s (%d of %d)", self._what, failure.reason, wait, self._row, MAX_TRIES
        )
        self._waited += wait
        if failure.status == 429 or (failure.status == 503 and failure.hint is not None):
            gate_of(failure.host).close(wait)  # the next request waits there, as those of all other threads
        else:
            pause(wait)

    def _wait(self, failure: HttpFailure) -> float | None:
        if not failure.passes or self._row >= MAX_TRIES or (failure.refused and self._row > 1):
            return None
        backoff = FIRST_WAIT * 2 ** (self._row - 1) * _jitter.uniform(0.75, 1.25)
        wait = backoff if failure.hint is None else failure.hint
        return wait if wait <= MAX_WAIT and self._waited + wait <= MAX_TOTAL_WAIT else None


def retrying(call: Callable[[], Result], what: str) -> Result:
    """Calls until it works, a bounded number of times, waiting as long as the server asks for.

    Raises:
        HttpFailure: the last one.
    """
    tries = Tries(what)
    while True:
        try:
            return call()
        except HttpFailure as failure:
            tries.again(failure)
