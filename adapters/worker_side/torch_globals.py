"""Keeps what changes torch for the whole process apart from what computes in its other threads.

transformers builds a model under another default dtype and with functions of torch replaced, for all threads.
Two threads that build at a time restore each other's settings, and what computes meanwhile computes in
another dtype. So one thread builds at a time, and none while another computes.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Iterator

from day0_worker.openmp_pool import release_threads

_CONDITION = threading.Condition()
_HERE = threading.local()
"""`depth`: how many `computing` are entered in this thread."""


class _State:
    """Of the process: threads that compute, threads that wait to change it, and whether one does."""

    computing = 0
    waiting = 0
    changing = False


@contextlib.contextmanager
def changing() -> Iterator[None]:
    """While it is entered, no other thread computes or changes; waits until all that compute have ended.

    Raises:
        RuntimeError: this thread computes itself, and would wait for itself.
    """
    if _depth():
        raise RuntimeError("a model cannot be built in the middle of a node's run")
    with _CONDITION:
        _State.waiting += 1
        try:
            _CONDITION.wait_for(lambda: not _State.changing and not _State.computing)
        finally:
            _State.waiting -= 1
        _State.changing = True
    try:
        yield
    finally:
        with _CONDITION:
            _State.changing = False
            _CONDITION.notify_all()


@contextlib.contextmanager
def computing() -> Iterator[None]:
    """While it is entered, no thread changes torch; may be entered again in the same thread."""
    if not _depth():
        _enter()
    _HERE.depth = _depth() + 1
    try:
        yield
    finally:
        _HERE.depth -= 1
        if not _depth():
            _leave()


@contextlib.contextmanager
def standing_still() -> Iterator[None]:
    """While it is entered, this thread does not count as one that computes: it waits for another."""
    depth, _HERE.depth = _depth(), 0
    if depth:
        release_threads()
        _leave()
    try:
        yield
    finally:
        if depth:
            _enter()
        _HERE.depth = depth


def _depth() -> int:
    return int(getattr(_HERE, "depth", 0))


def _enter() -> None:
    with _CONDITION:
        # Those that wait to change it go first: nodes are run without end.
        _CONDITION.wait_for(lambda: not _State.changing and not _State.waiting)
        _State.computing += 1


def _leave() -> None:
    with _CONDITION:
        _State.computing -= 1
        _CONDITION.notify_all()
