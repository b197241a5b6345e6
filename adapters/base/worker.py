"""The process in which a target runs: started from an argv, asked over pipes, ended with all below it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import psutil

from day0_worker import frames
from day0_worker.serve import PROTOCOL

from .errors import (
    RemoteError,
    WorkerCrashed,
    WorkerError,
    WorkerOutOfMemory,
    WorkerTimeout,
    WorkerUnusable,
)
from .worker_environment import worker_environment
from .worker_log import WorkerLog
from .worker_memory import MemoryWatch
from .worker_pipe import WorkerPipe
from .worker_sources import BOOTSTRAP

if TYPE_CHECKING:
    from torch import Tensor

START_SECONDS = 180.0
"""How long a worker may take to start: importing torch and a vendor's stack takes 3 to 10 s, busy or not."""

_GONE_SECONDS = 10.0
_MAX_ANSWER_BYTES = 8 * 2**30
_MAX_ANSWER_JSON_BYTES = 64 * 2**20


@dataclass(frozen=True)
class WorkerPlan:
    """How a worker is started.

    Attributes:
        hello: what it is told of its stack: `stack` (`module:Class`), `device`, `count`, `dtype`, `options`.
        sources: zip from `pack_sources`.
        command: argv that ends in a Python, e.g. `docker exec -i C python`; empty: this Python.
        memory_limit: bytes (PSS of the local process tree); 0 for none.
        log: file to append standard error to.
        environment: of the parent; secrets are taken out.
    """

    hello: Mapping[str, Any]
    sources: bytes
    command: Sequence[str] = ()
    memory_limit: int = 0
    log: Path | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))


class Worker:
    """One started worker. Not reusable after it died: make a new one.

    Args:
        plan: how to start it.
        start_seconds: how long that may take.

    Raises:
        WorkerUnusable: E604, it did not start.
        WorkerTimeout: E602, it did not start in time.
    """

    def __init__(self, plan: WorkerPlan, start_seconds: float = START_SECONDS) -> None:
        self.plan = plan
        self._lock = threading.RLock()
        self._calls = 0
        self._home = tempfile.mkdtemp(prefix="day0-worker-")
        self._process = self._spawn()
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        assert stdin is not None
        assert stdout is not None
        assert stderr is not None
        self.log = WorkerLog(stderr, plan.log)
        self._memory = MemoryWatch(self._process.pid, plan.memory_limit, self._kill)
        self._pipe = WorkerPipe(stdin, stdout, self._is_running)
        self._greet(start_seconds)

    @property
    def pid(self) -> int:
        """Of the process that the parent started."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can still be called."""
        return self._home != "" and self._is_running()

    @property
    def peak_bytes(self) -> int:
        """Highest memory of the process tree so far (PSS)."""
        return self._memory.peak

    def call(
        self,
        verb: str,
        request: Mapping[str, Any],
        tensors: Mapping[str, Tensor] | None = None,
        *,
        timeout: float,
    ) -> tuple[dict[str, Any], bytearray]:
        """Asks one thing and waits for the answer.

        Args:
            verb: see docs/worker-protocol.md.
            request: JSON beside the verb.
            tensors: by name.
            timeout: seconds for writing, working and reading together.

        Returns:
            The answer (`result` and what was measured) and the blob of its tensors.

        Raises:
            RemoteError: E605, it lives and answered with an error.
            WorkerError: it is dead by now; the subclass says how it ended.
        """
        from day0_worker.blobs import dump

        with self._lock:
            self._calls += 1
            deadline = time.monotonic() + timeout
            parts = frames.pack({"id": self._calls, "verb": verb, **request}, list(dump(tensors or {})))
            try:
                self._pipe.write(parts, deadline)
                answer, blob = frames.unpack(
                    lambda size: self._pipe.read(size, deadline),
                    max_json=_MAX_ANSWER_JSON_BYTES,
                    max_blob=_MAX_ANSWER_BYTES,
                )
                self._check(answer)
            except (EOFError, BrokenPipeError):
                self._raise_end(verb)
            except TimeoutError:
                self._raise_timeout(verb, timeout)
            except frames.FrameError as error:
                self._raise_garbage(verb, str(error))
            except BaseException:  # an interrupt in the middle of a frame leaves nothing to go on with
                self.close()
                raise
            if "error" in answer:
                raise self.remote_error(verb, answer["error"])
            return answer, blob

    def close(self) -> None:
        """Ends the process and everything below it; waits until they are gone."""
        self._memory.stop()
        self._kill()
        self._pipe.close()
        with contextlib.suppress(ChildProcessError):
            self._process.wait()
        self.log.finish()
        home, self._home = self._home, ""
        if home:
            shutil.rmtree(home, ignore_errors=True)

    def _spawn(self) -> subprocess.Popen[bytes]:
        command = [*(self.plan.command or [sys.executable]), "-c", BOOTSTRAP]
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                cwd=self._home,
                env=worker_environment(self.plan.environment, self._home),
                start_new_session=True,
            )
        except OSError as error:
            shutil.rmtree(self._home, ignore_errors=True)
            raise WorkerUnusable(
                f"the worker's command {command[0]!r} cannot be started: {error.strerror}",
                remedy="Name a Python 3.9 or newer with torch, or a command that ends in one.",
            ) from error

    def _greet(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        stack = self.plan.hello["stack"]
        try:
            try:
                self._pipe.write([len(self.plan.sources).to_bytes(8, "big"), self.plan.sources], deadline)
            except BrokenPipeError:
                self._raise_end("start")
            self.call("hello", {"protocol": PROTOCOL, **self.plan.hello}, timeout=deadline - time.monotonic())
        except RemoteError as error:
            self.close()
            raise WorkerUnusable(
                f"the stack {stack} cannot be used by the worker: {error.message}",
                log=error.log,
                remedy="Install what it lacks into the environment of the worker's Python.",
            ) from error
        except WorkerCrashed as error:
            last = error.log[-1] if error.log else "it wrote nothing"
            raise WorkerUnusable(
                f"the worker for {stack} ended while it started: {last}",
                log=error.log,
                remedy="Check that the command runs a Python 3.9 or newer that can import torch.",
            ) from error
        except BaseException:  # whatever ends the start, the process must not outlive it
            self.close()
            raise

    def _is_running(self) -> bool:
        if not hasattr(os, "waitid"):
            return self._process.poll() is None
        # Without reaping: the process group stays ours until everything in it was killed.
        try:
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        except ChildProcessError:
            return False

    def _kill(self) -> None:
        if self._process.returncode is not None:
            return
        below = _below(self._process.pid)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for process in below:
            with contextlib.suppress(psutil.Error):
                process.kill()
        until = time.monotonic() + _GONE_SECONDS
        while any(_lives(process) for process in below) and time.monotonic() < until:
            time.sleep(0.01)

    def _check(self, answer: Mapping[str, Any]) -> None:
        if answer.get("id") != self._calls:
            raise frames.FrameError(f"the answer is to request {answer.get('id')!r}, not {self._calls}")
        error, result = answer.get("error"), answer.get("result")
        if not (isinstance(result, dict) if error is None else isinstance(error, dict)):
            raise frames.FrameError("the answer has neither a result nor an error")

    def remote_error(self, verb: str, error: Mapping[str, Any]) -> RemoteError:
        """The `error` object of an answer, or of one operator within it, as an exception."""
        texts = [_writable(frame) for frame in error.get("frames", ()) if isinstance(frame, str)]
        kind, name = _writable(error.get("kind", "runtime")), _writable(error.get("type", ""))
        message, place = _writable(error.get("message", ""))[:4000], error.get("place")
        places = place.items() if isinstance(place, dict) else ()
        return RemoteError(
            f"{self.plan.hello['stack']} failed in {verb}: {name}: {message}",
            kind=kind,
            type_name=name,
            log=[*texts, *self.log.tail(10)],
            place={_writable(key): _writable(value) for key, value in places},
        )

    def _raise_end(self, verb: str) -> NoReturn:
        until = time.monotonic() + 5.0
        while self._is_running() and time.monotonic() < until:
            time.sleep(0.02)
        lives = self._is_running()
        self.close()
        log = self.log.tail()
        if self._memory.exceeded:
            raise self._out_of_memory(verb)
        if lives:
            raise WorkerError(
                f"the worker closed its answers during {verb} and lived on; it was killed",
                log=log,
                code="E606",
            )
        raise WorkerCrashed(f"the worker ended during {verb} {_how(self._process.returncode)}", log=log)

    def _raise_timeout(self, verb: str, timeout: float) -> NoReturn:
        self.close()
        if self._memory.exceeded:
            raise self._out_of_memory(verb)
        raise WorkerTimeout(
            f"{verb} took longer than {timeout:g} s; the worker was killed",
            log=self.log.tail(),
            remedy="Give more time with --timeout if it was only slow.",
        )

    def _raise_garbage(self, verb: str, text: str) -> NoReturn:
        self.close()
        raise WorkerError(
            f"the worker answered {verb} with something else than an answer: {text}; it was killed",
            log=self.log.tail(),
            code="E606",
        )

    def _out_of_memory(self, verb: str) -> WorkerOutOfMemory:
        gib = 2**30
        return WorkerOutOfMemory(
            f"the worker took {self._memory.peak / gib:.2f} GiB during {verb}, its limit is "
            f"{self.plan.memory_limit / gib:.2f} GiB; it was killed",
            log=self.log.tail(),
            remedy="Give more with --memory if the host has it.",
        )


def _below(leader: int) -> list[psutil.Process]:
    """The processes below the leader of a session, and those left in its session once it has died."""
    below: set[psutil.Process] = set()
    with contextlib.suppress(psutil.Error):
        below.update(psutil.Process(leader).children(recursive=True))
    for pid in psutil.pids():
        with contextlib.suppress(OSError, psutil.Error):
            if pid != leader and os.getsid(pid) == leader:
                below.add(psutil.Process(pid))
    return list(below)


def _lives(process: psutil.Process) -> bool:
    try:
        # A zombie waits only for an init that reaps, which containers often lack.
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _how(status: int) -> str:
    if status >= 0:
        return f"with exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = str(-status)
    hint = " (the kernel's out-of-memory killer sends it, too)" if name == "SIGKILL" else ""
    return f"by signal {name}{hint}"


def _writable(text: object) -> str:
    """The text as a record can hold it: JSON brings half characters (lone surrogates) that no file takes."""
    return str(text).encode("utf-8", "replace").decode("utf-8")
