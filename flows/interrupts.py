"""Ctrl-C and SIGTERM end the run at once: no half-true record, no process left, exit status 130."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

INTERRUPTED = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_TELL_SECONDS = 2.0


_ours = threading.Event()


@contextmanager
def ends_on_signals() -> Iterator[None]:
    """Ctrl-C or SIGTERM tells Prefect that the flow run crashed and ends the process with 130.

    Nothing is unwound: stages run in threads that would first see their workers die and write that down as
    the target's fault. What was finished lies in the run store, and the next run goes on from there.
    """
    before = {number: signal.signal(number, _end) for number in _SIGNALS}
    _ours.set()
    try:
        yield
    finally:
        _ours.clear()
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def still_ends_on_signals() -> Iterator[None]:
    """Takes the signals back from Prefect, which claims SIGTERM when a flow starts.

    Where the command line does not own the process (a worker's, a server's) Prefect keeps them: it has to
    tell a cancelled run from a crashed one.
    """
    if not _ours.is_set() or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _end) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, frame: FrameType | None) -> None:
    for other in _SIGNALS:
        signal.signal(other, signal.SIG_IGN)
    sys.stderr.write("\nday0: interrupted; the same command goes on from the last finished unit\n")
    _tell_prefect(_flow_run_id())
    _end_with_children()


def _flow_run_id() -> str:
    if "prefect" not in sys.modules:
        return ""
    from prefect.runtime import flow_run

    return str(flow_run.id or "")


def _tell_prefect(flow_run_id: str) -> None:
    url = os.environ.get("PREFECT_API_URL")
    if not flow_run_id or not url:
        return
    import httpx

    state = {"state": {"type": "CRASHED", "message": "interrupted"}, "force": True}
    # Where this fails the run stays Running in Prefect, until its zombie automation ends it.
    with suppress(httpx.HTTPError):
        httpx.post(f"{url}/flow_runs/{flow_run_id}/set_state", json=state, timeout=_TELL_SECONDS)


def _end_with_children() -> None:
    import psutil

    children = [child.pid for child in psutil.Process().children(recursive=True)]
    # From here on no other thread may run, or a stage would record its worker's death: neither os.kill nor
    # os._exit gives up the interpreter lock, and no switch is forced within this interval.
    sys.setswitchinterval(1e6)
    for pid in children:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    os._exit(INTERRUPTED)
