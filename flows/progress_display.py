"""Draws the log records of `day0.progress` on standard error: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .terminal import printable

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_SECONDS_BETWEEN_LINES = 5.0


@contextmanager
def show_progress() -> Iterator[None]:
    """Shows progress and the messages of the logger `day0` until the block ends."""
    logger = logging.getLogger("day0")
    before = logger.level
    logger.setLevel(logging.INFO)
    if sys.stderr.isatty():
        with _bars() as bars:
            handler: logging.Handler = _BarHandler(bars)
            logger.addHandler(handler)
            try:
                yield
            finally:
                logger.removeHandler(handler)
                logger.setLevel(before)
        return
    handler = _LineHandler()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def _bars() -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", markup=False, style="dim"),
        console=Console(stderr=True),
        transient=False,
    )


class _BarHandler(logging.Handler):
    def __init__(self, bars: Progress) -> None:
        super().__init__()
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def emit(self, record: logging.LogRecord) -> None:
        state = getattr(record, "day0_progress", None)
        if state is None:
            self._bars.console.print(printable(record.getMessage()), markup=False, highlight=False)
            return
        step, done, total, note = state
        if step not in self._tasks:
            self._tasks[step] = self._bars.add_task(step, total=total or None, note="")
        self._bars.update(self._tasks[step], completed=done, total=total or None, note=printable(note))


class _LineHandler(logging.Handler):
    """Plain lines: the first and last of a step, and one every few seconds between them."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        state = getattr(record, "day0_progress", None)
        if state is not None:
            step, done, total, _ = state
            now = time.monotonic()
            finished = bool(total) and done >= total
            if not finished and now - self._last.get(step, float("-inf")) < _SECONDS_BETWEEN_LINES:
                return
            self._last[step] = now
        print(printable(record.getMessage()).rstrip(), file=sys.stderr, flush=True)
