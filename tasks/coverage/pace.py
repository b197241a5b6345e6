"""How many calls go into one batch, so that large batches pay off and none runs over the time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

_FIRST, _MOST = 8, 32
"""Calls of the first batch and of the largest. A stack that exports pays for a graph, hardly for what is in
it: sixteen operators in one graph took 1.4 s on onnxruntime, one took 0.5 to 1.3 s."""

_MEMORY = 0.7


class Pace:
    """Counts time against a budget and sizes the next batch by what the last one took.

    Args:
        budget: seconds.
    """

    def __init__(self, budget: float) -> None:
        self._budget = budget
        self._began = time.monotonic()
        self._size = _FIRST
        self._each = 0.0
        self._stopped = self._warm = False

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._began

    @property
    def spent(self) -> bool:
        """Whether nothing more should begin."""
        return self._stopped or self.seconds >= self._budget

    @property
    def size(self) -> int:
        """Of the next batch: as many calls as fit the time that is left, one at least."""
        left = self._budget - self.seconds
        fits = int(left / self._each) if self._each and left < float("inf") else self._size
        return max(1, min(self._size, fits))

    def stop(self) -> None:
        """Nothing more begins."""
        self._stopped = True

    @contextlib.contextmanager
    def timing(self, count: int) -> Iterator[None]:
        """Around one batch of that many calls."""
        began = time.monotonic()
        yield
        took = time.monotonic() - began
        if not self._warm:  # workers were started meanwhile: that says nothing of the next batch
            self._warm = True
            return
        # A batch may hold calls that fail, which cost far more: what was dear is not forgotten at once.
        self._each = max(took / count, self._each * _MEMORY)
        self._size = min(_MOST, self._size * 2)
