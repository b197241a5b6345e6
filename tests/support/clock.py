"""A clock that only waiting moves, for whatever waits through `day0.adapters.sources.retry`."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest


class Clock:
    """Time that passes by waiting alone.

    Attributes:
        waits: seconds of each wait, in order.
    """

    def __init__(self) -> None:
        self.waits: list[float] = []
        self._moment = 1000.0
        self._lock = threading.Lock()

    def now(self) -> float:
        """The moment, in seconds."""
        return self._moment

    def pause(self, seconds: float) -> None:
        """Lets time pass."""
        with self._lock:
            self.waits.append(seconds)
            self._moment += seconds

    def about(self, expected: Sequence[float]) -> bool:
        """Whether the waits were these, up to the spread by which threads are kept apart."""
        return len(self.waits) == len(expected) and all(
            0.74 * want <= wait <= 1.26 * want for wait, want in zip(self.waits, expected, strict=True)
        )


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock of one's own, and no host that had asked for silence before."""
    from day0.adapters.sources import retry

    made = Clock()
    monkeypatch.setattr(retry, "now", made.now)
    monkeypatch.setattr(retry, "pause", made.pause)
    monkeypatch.setattr(retry, "_GATES", {})
    return made
