"""How long work says how far it is; the command line and the flows decide how to show it."""

from __future__ import annotations

import logging
import time
from typing import Protocol


class Progress(Protocol):
    """Receives the state of one long step."""

    def __call__(self, step: str, done: int, total: int, note: str = "") -> None:
        """Takes one state.

        Args:
            step: what is being done, e.g. `numerics eager@cpu/bf16`.
            done: units finished.
            total: units in all; 0 when unknown.
            note: the unit at hand, e.g. `model.layers.7`.
        """


def silent(step: str, done: int, total: int, note: str = "") -> None:
    """Shows nothing."""


_LOGGER = logging.getLogger("day0.progress")
_LAST: dict[str, float] = {}
_SECONDS_BETWEEN_LINES = 0.5


def log_progress(step: str, done: int, total: int, note: str = "") -> None:
    """Says it as a log record with the numbers in `day0_progress`, at most twice a second for one step.

    The command line draws these records as bars on a terminal; Prefect ships them to its own log.
    """
    now = time.monotonic()
    first, last = step not in _LAST, bool(total) and done >= total
    if not (first or last) and now - _LAST[step] < _SECONDS_BETWEEN_LINES:
        return
    _LAST[step] = now
    amount = f"{done}/{total}" if total else str(done)
    _LOGGER.info("%s %s %s", step, amount, note, extra={"day0_progress": (step, done, total, note)})
