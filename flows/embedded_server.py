"""Prefect's embedded server as a child of ours: own port, no race on migrations, dies with its parent.

Prefect would start one by itself, but that one outlives a killed flow, and two first starts at once race on
the migrations of one database.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from day0.adapters.base.errors import Day0Error
from day0.adapters.base.progress import log_progress

from .prefect_setup import STARTUP_SECONDS, find_prefect

_STEP = "start Prefect's embedded server"
_POLL_SECONDS = 0.2
_STOP_SECONDS = 5.0


class EmbeddedServer:
    """A server that is starting or up; `wait` before the first flow."""

    def __init__(self) -> None:
        self._home = find_prefect().home
        self._home.mkdir(parents=True, exist_ok=True)
        self._lock = open(self._home / "day0-start.lock", "w")  # noqa: SIM115 - held until the server is up
        # Files of a temporary folder, not pipes: nobody reads a pipe while the flow runs.
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - as above
        self._process: subprocess.Popen[bytes] | None = None
        self._started = time.monotonic()
        self._api_url = ""
        self._starter = threading.Thread(target=self._start, daemon=True)
        self._starter.start()

    def _start(self) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.set_inheritable(True)
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
            # Last: whoever waits for the address may then rely on the process.
            self._api_url = f"http://127.0.0.1:{listener.getsockname()[1]}/api"

    def address(self) -> str:
        """For `PREFECT_API_URL`; known before the server answers.

        Raises:
            Day0Error: E160, it took too long.
        """
        self._until(lambda: bool(self._api_url))
        return self._api_url

    def wait(self) -> None:
        """Returns when the server answers.

        Raises:
            Day0Error: E160, it did not come up in time.
        """
        self._until(self._answers)
        self._lock.close()
        elapsed = max(int(time.monotonic() - self._started), 1)
        log_progress(_STEP, elapsed, elapsed, "seconds, up")

    def _until(self, done: Callable[[], bool]) -> None:
        while not done():
            elapsed = time.monotonic() - self._started
            log_progress(_STEP, int(elapsed), 0, "seconds")
            ended = self._process is not None and self._process.poll() is not None
            if ended or elapsed > STARTUP_SECONDS:
                raise self._failure()
            time.sleep(_POLL_SECONDS)

    def _answers(self) -> bool:
        import httpx

        try:
            return (
                self._process is not None
                and httpx.get(f"{self._api_url}/health", timeout=5, trust_env=False).is_success
            )
        except httpx.TransportError:
            return False

    def _failure(self) -> Day0Error:
        self._log.seek(0)
        last = " ".join(self._log.read().split())[-600:]
        return Day0Error(
            f"Prefect's embedded server on {self._home} did not come up within {STARTUP_SECONDS} s"
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

    The caller puts its address into `PREFECT_API_URL`, imports Prefect, and calls `wait` before the first
    flow.
    """
    if find_prefect().api_url:
        yield None
        return
    server = EmbeddedServer()
    try:
        yield server
    finally:
        server.stop()


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
