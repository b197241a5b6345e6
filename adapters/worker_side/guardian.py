"""A process of its own that ends the worker's process group when the parent is gone.

It is a fork made before anything heavy is loaded, so it sees the end of the parent even while the worker
hangs in native code that never lets go of the interpreter's lock.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
from typing import Optional

_POLL_MILLISECONDS = 500


def start(requests: int, answers: int, home: str) -> None:
    """Makes this process the head of a process group and forks the guardian.

    Args:
        requests: descriptor whose far end the parent holds; its hang-up is the parent's death.
        answers: descriptor of the answers, which the guardian must not keep open.
        home: the worker's own temporary folder, removed at the end.
    """
    if os.getpgrp() != os.getpid():
        os.setsid()
    worker, parent = os.getpid(), os.getppid()
    if os.fork():
        return
    try:
        _watch(requests, answers, worker, parent)
        group = os.getpgrp()
        os.setpgid(0, 0)  # out of the group that ends now, to clean up after it
        os.killpg(group, signal.SIGKILL)
        shutil.rmtree(home, ignore_errors=True)
    finally:
        os._exit(0)


def _watch(requests: int, answers: int, worker: int, parent: int) -> None:
    """Returns as soon as the parent or the worker is gone."""
    os.close(answers)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    poll = select.poll()
    # Asks for no data: the hang-up is reported even when requests stand unread in the pipe.
    poll.register(requests, getattr(select, "POLLRDHUP", 0))
    while True:
        events = poll.poll(_POLL_MILLISECONDS)
        if events or os.getppid() != worker or _parent_of(worker) not in (None, parent):
            return


def _parent_of(pid: int) -> Optional[int]:
    if not sys.platform.startswith("linux"):
        return None
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            return int(stat.read().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None
