"""Prefect's embedded server as a child of ours: nobody else's port, no race on migrations, dies with its parent.

Prefect would start one by itself, but that one outlives a killed flow, and two first starts at once race on the
migrations of one database.
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from day0.adapters.base.errors import Day0Error
from day0.adapters.base.progress import log_progress

from .prefect_setup import STARTUP_SECONDS, find_prefect

_LOGGER = logging.getLogger("day0.prefect")
_STEP = "start Prefect's embedded server"
_POLL_SECONDS = 0.2
_STOP_SECONDS = 5.0


class EmbeddedServer:
    """A server that is starting or up; `wait` before the first flow.

    Attributes:
        api_url: for `PREFECT_API_URL`.
    """

    def __init__(self) -> None:
        self._home = find_prefect().home
        self._home.mkdir(parents=True, exist_ok=True)
        self._lock = open(self._home / "day0-start.lock", "w")  # noqa: SIM115 - held until the server is up
        # Files of a temporary folder, not pipes: nobody reads a pipe while the flow runs.
        self._log = tempfile.TemporaryFile("w+")
        self._process: subprocess.Popen[bytes] | None = None
        self._started = time.monotonic()
        self.api_url = ""
        self._starter = threading.Thread(target=self._start, daemon=True)
        self._starter.start()

    def _start(self) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.set_inheritable(True)
            self.api_url = f"http://127.0.0.1:{listener.getsockname()[1]}/api"
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(listener.fileno()), str(os.getpid())],
                pass_fds=[listener.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
                env={
                    **os.environ,
                    "PREFECT_UI_ENABLED": "0",
                    "PREFECT__SERVER_EPHEMERAL": "1",
                    "PREFECT__SERVER_FINAL": "1",
                },
            )

    def wait(self) -> None:
        """Returns when the server answers.

        Raises:
            Day0Error: E160, it did not come up in time.
        """
        import httpx

        deadline = self._started + STARTUP_SECONDS
        while time.monotonic() < deadline:
            elapsed = int(time.monotonic() - self._started)
            log_progress(_STEP, elapsed, 0, "seconds")
            process = self._process
            if process is not None and process.poll() is not None:
                break
            try:
                if process and httpx.get(f"{self.api_url}/health", timeout=5, trust_env=False).is_success:
                    self._lock.close()
                    log_progress(_STEP, max(elapsed, 1), max(elapsed, 1), "up")
                    return
            except httpx.TransportError:
                pass  # not listening yet
            time.sleep(_POLL_SECONDS)
        self._log.seek(0)
        last = " ".join(self._log.read().split())[-600:]
        raise Day0Error(
            f"Prefect's embedded server on {self._home} did not answer within {STARTUP_SECONDS} s"
            + (f"; it wrote: {last}" if last else ""),
            code="E160",
            remedy="Free the machine and try again, or point PREFECT_API_URL to a running server.",
        )

    def stop(self) -> None:
        """Ends the server and waits until it is gone."""
        self._starter.join(timeout=_STOP_SECONDS)
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout=_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._lock.close()
        self._log.close()


@contextmanager
def prefect_server() -> Iterator[EmbeddedServer | None]:
    """Begins to start an embedded server where none is configured; yields it, or None where one is.

    The caller does other work, then calls `wait`, then imports Prefect. `PREFECT_API_URL` stays set to it.
    """
    if find_prefect().api_url:
        yield None
        return
    server = EmbeddedServer()
    try:
        yield server
    finally:
        server.stop()
        os.environ.pop("PREFECT_API_URL", None)


def _die_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


def serve(descriptor: int, parent: int) -> None:
    """Serves on an inherited listening socket until the parent is gone; runs in the child."""
    threading.Thread(target=_die_with, args=(parent,), daemon=True).start()
    import uvicorn
    from prefect.server.api.server import create_app

    listener = socket.socket(fileno=descriptor)
    config = uvicorn.Config(create_app, factory=True, log_level="error", lifespan="on")
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]))
