"""One question to a process of its own: bounded in time, memory and answer, without network or secrets."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ..base.progress import Progress, silent
from ..base.worker_environment import worker_environment

_TICK = 1.0  # seconds between two signs of life


@dataclass(frozen=True)
class Bounds:
    """What the process may take.

    Attributes:
        seconds: after which it is killed.
        memory: bytes (PSS) at which it is killed.
        answer: bytes of its answer, beyond which it is killed.
        task: what it does, for the reasons: `building the model`.
    """

    seconds: float
    memory: int
    answer: int
    task: str


def ask_process(
    command: Sequence[str], question: Any, bounds: Bounds, *, progress: Progress = silent, step: str = ""
) -> tuple[list[Any], str]:
    """The lines of JSON that the process answers, and the reason why they are not all; raises nothing.

    The process reads one JSON document from standard input and writes JSON lines, `null` as the last.

    Args:
        command: its argv.
        question: the document.
        bounds: what it may take.
        progress: told every second that it goes on.
        step: the words for that.

    Returns:
        The lines without the last, and an empty reason; or the lines before it was ended or died, and why.
    """
    with tempfile.TemporaryDirectory(prefix="day0-asked-") as home:
        log = Path(home) / "log"
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=home,
                env=worker_environment(os.environ, home),
            )
            with _signs_of_life(progress, step):
                lines, ended = _converse(process, json.dumps(question).encode(), bounds)
        if lines and lines[-1] is None:
            return lines[:-1], ""
        return lines, ended or _last_words(log, process.returncode, bounds.task)


@contextmanager
def _signs_of_life(progress: Progress, step: str) -> Iterator[None]:
    """Says every second how long it has taken; the process itself cannot tell how far it is."""
    by = "transformers, in a process of its own"
    done, began = threading.Event(), time.monotonic()

    def tell() -> None:
        while not done.wait(_TICK):
            progress(step, 0, 1, f"{by}, {time.monotonic() - began:.0f} s")

    progress(step, 0, 1, by)
    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()
        progress(step, 1, 1, f"{by}, {time.monotonic() - began:.0f} s")


def _converse(process: subprocess.Popen[bytes], question: bytes, bounds: Bounds) -> tuple[list[Any], str]:
    """The answer's lines and, where the process was ended before it was done, the reason."""
    from ..base.worker_memory import MemoryWatch  # reading process memory is needed only here

    ended: list[str] = []

    def end(reason: str) -> None:
        ended.append(reason)
        process.kill()

    timer = threading.Timer(bounds.seconds, end, [f"{bounds.task} took more than {bounds.seconds:g} s"])
    watch = MemoryWatch(
        process.pid, bounds.memory, lambda: end(f"{bounds.task} took more than {bounds.memory} bytes")
    )
    assert process.stdin is not None
    assert process.stdout is not None
    writer = threading.Thread(target=_write, args=(process.stdin, question), daemon=True)
    timer.start()
    writer.start()
    try:
        lines = _lines(process.stdout, bounds, end)
    finally:
        timer.cancel()
        watch.stop()
        if process.poll() is None and ended:
            process.kill()
        process.wait()
        writer.join()
        process.stdout.close()
    return lines, ended[0] if ended else ""


def _write(stdin: IO[bytes], question: bytes) -> None:
    try:
        stdin.write(question)
        stdin.close()
    except OSError:  # it died first; its exit status tells
        return


def _lines(stdout: IO[bytes], bounds: Bounds, end: Callable[[str], None]) -> list[Any]:
    lines: list[Any] = []
    size = 0
    for line in stdout:
        size += len(line)
        if size > bounds.answer:
            end(f"{bounds.task} gave more than {bounds.answer} bytes")
            break
        try:
            lines.append(json.loads(line))
        except ValueError:  # cut off by its death
            break
    return lines


def _last_words(log: Path, status: int | None, task: str) -> str:
    words = log.read_bytes()[-2000:].decode(errors="replace").strip().splitlines()
    said = f": {words[-1][:300]}" if words else ""
    return f"the process that does {task} ended with status {status}{said}"
